package schema

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// A task's input, results and history are in its journal; to forget them is to delete its journal rows. Its
// row in tasks stays as it is. partitions.forgotten says for all tasks at once which are forgotten: those
// whose end number is not above it, but for tasks in error, which stay for a person. When such a task ends
// otherwise it gets a new end number.
//
// A child goes with its parent, whose undo may need it. So a purge passes over a child's own end while the
// parent's journal is there. When the parent is old enough, its journal goes first, with as many descendants
// as fit into a purge, the deepest first: without its journal it cannot be undone any more. The parent's end
// is passed when the last descendant is gone, so that a purge that was cut off goes on there.

// purgeAgain is how often a purge begins with a partition's first row again. Tasks that had to stay, in error
// or unfinished, may have ended since.
const purgeAgain = time.Hour

// purgePlaces remembers how far the old rows of each partition are gone, so that a purge need not walk over
// the rows that stay. It may be lost: then the next purge walks once more.
type purgePlaces struct {
	mu     sync.Mutex
	places map[int]purgePlace
}

// purgePlace is the place of a partition.
type purgePlace struct {
	// number: every row below is gone, or its task stays.
	number int64
	// from is the time before which tasks were old when the walk began at the first row.
	from core.Instant
}

// get returns where to go on for rows that ended before old; the beginning, when the walk is older than
// purgeAgain.
func (p *purgePlaces) get(partition int, old core.Instant) purgePlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is := p.places[partition]; old < is.from.Add(purgeAgain) {
		return is
	}
	return purgePlace{from: old}
}

// set remembers how far a walk went.
func (p *purgePlaces) set(partition int, is purgePlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil {
		p.places = map[int]purgePlace{}
	}
	p.places[partition] = is
}

// forget makes the next purge begin at the first row.
func (p *purgePlaces) forget(partition int) { p.set(partition, purgePlace{}) }

// Old is what a purge has chosen to delete. It was read without a lock, so the statements that delete check
// again.
type Old struct {
	// Rows are tasks whose rows go. Details are tasks whose journals go. Both are numbers.
	Rows, Details []int64
	// Family are the descendants of Details, whose journals go with theirs.
	Family []Kin
	// Partly says that Family is not complete. The next purge goes on with it.
	Partly bool
	// Labels says that some of Rows have labels.
	Labels bool
	// Forgotten is the new value of partitions.forgotten.
	Forgotten int64

	place purgePlace
	// moves says that Forgotten differs from what is stored.
	moves bool
}

// Kin is a descendant: its number, and that of the task in Details from which it descends.
type Kin struct{ Number, Of int64 }

// Goes returns the tasks whose journals go: those of Details that are still old now that the partition is
// locked, and their descendants.
func (o *Old) Goes(old []int64) []int64 {
	if len(o.Family) == 0 {
		return old
	}
	all, is := slices.Clone(old), make(map[int64]bool, len(old))
	for _, number := range old {
		is[number] = true
	}
	for _, k := range o.Family {
		if is[k.Of] && !is[k.Number] {
			all = append(all, k.Number)
		}
	}
	return all
}

// The queries of a purge. End numbers are in the order of time but for milliseconds, so that the first task
// that is too young ends the walk. The fourth column says whether the task stays, see below.
const (
	qOldDetails = `SELECT t.number, t.end_number, t.ended_at, CASE WHEN t.state = 'error' THEN 1
	WHEN t.parent IS NOT NULL AND EXISTS (SELECT 1 FROM journal j WHERE j.partition = t.partition AND j.number = t.parent AND j.seq = 1) THEN 1 ELSE 0 END,
	0, COALESCE(t.parent, 0) FROM tasks t
	WHERE t.partition = ?1 AND t.end_number > ?2 AND t.end_number <= (SELECT p.told FROM partitions p WHERE p.partition = ?1) ORDER BY t.end_number LIMIT ?3`
	qOldRows = `SELECT number, number, ended_at, CASE WHEN ended_at IS NULL OR state = 'error' THEN 1 WHEN ` + isForgotten + ` THEN 0
	WHEN parent IS NOT NULL AND ` + isPassed + ` THEN 1 ELSE 2 END, CASE WHEN labels IS NULL THEN 0 ELSE 1 END, 0 FROM tasks
	WHERE partition = ?1 AND number >= ?2 ORDER BY number LIMIT ?3`
	isPassed    = `end_number <= (SELECT p.forgotten FROM partitions p WHERE p.partition = ?1)`
	isForgotten = isPassed + ` AND (parent IS NULL OR NOT ` + hasJournal + `)`
	hasJournal  = `EXISTS (SELECT 1 FROM journal j WHERE j.partition = tasks.partition AND j.number = tasks.number AND j.seq = 1)`
	qKin        = `SELECT number, parent`
	isKin       = ` AND parent IS NOT NULL AND state IN ('processed', 'undone') AND ` + hasJournal + `
	AND end_number < (SELECT up.end_number FROM tasks up WHERE up.partition = tasks.partition AND up.number = tasks.parent) ORDER BY number LIMIT ?3`
	qForgottenTo = `SELECT forgotten FROM partitions WHERE partition = ?1`
)

// What a purge's query says of a task, as a number in its fourth column: whether the walk takes the task, passes over it,
// or ends before it.
const (
	stayNot   = 0 // goes, if it is old enough
	stayKept  = 1 // stays: forgotten already, unfinished, or for a person to settle
	stayLater = 2 // its details go first
)

// purgeLook is how many tasks a walk goes over at most.
const purgeLook = 20_000

// choose finds up to limit rows, and as many tasks whose journals are old enough.
func (r *reader) choose(ctx context.Context, partition int, detail, row core.Instant, limit int) (Old, error) {
	// Rows go first by number, details by end number: two walks with a place each. That of details is stored
	// in the partition's row.
	c := Old{place: r.purged.get(partition, row)}
	if row > 0 {
		old, err := r.findOld(ctx, qOldRows, partition, c.place.number, row, limit)
		if err != nil {
			return c, err
		}
		c.Rows, c.Labels, c.place.number = old.numbers, old.labels, old.next
	}
	if detail == 0 {
		return c, nil
	}
	forgotten, err := column[int64](ctx, r, qForgottenTo, partition)
	if err != nil || len(forgotten) == 0 {
		return c, err
	}
	old, err := r.findOld(ctx, qOldDetails, partition, forgotten[0], detail, limit)
	if err != nil {
		return c, err
	}
	c.Details, c.Forgotten, c.moves = old.numbers, old.next, old.next > forgotten[0]
	// Only part of the family fits into this purge, so that the parents' ends may not be passed yet.
	if c.Family, c.Partly, err = r.family(ctx, partition, old.numbers, limit); c.Partly {
		c.Forgotten, c.moves = forgotten[0], false
	}
	return c, err
}

// family returns the descendants of tasks that still have journals, at most limit of each depth. partly: a
// depth has more. Then it returns a part of that depth with all descendants of the part: no child goes before
// its own children.
func (r *reader) family(ctx context.Context, partition int, tasks []int64, limit int) (all []Kin, partly bool, err error) {
	of := make(map[int64]int64, len(tasks))
	for _, number := range tasks {
		of[number] = number
	}
	for len(tasks) > 0 {
		found, err := r.kin(ctx, partition, tasks, limit+1)
		if err != nil {
			return nil, false, fmt.Errorf("children of old tasks of partition %d: %w", partition, err)
		}
		if len(found) > limit {
			all, partly, found = nil, true, found[:limit]
		}
		tasks = make([]int64, len(found))
		for i := range found {
			tasks[i] = found[i].Number
			found[i].Of = of[found[i].Of]
			of[found[i].Number] = found[i].Of
		}
		all = append(all, found...)
	}
	return all, partly, nil
}

// kin reads children of tasks with their parents, of those that ended before their parent.
func (r *reader) kin(ctx context.Context, partition int, parents []int64, limit int) (all []Kin, err error) {
	for row := range each(r.query(ctx, qKin+r.among("tasks", "parent")+isKin, partition, r.list(parents), limit)) {
		var k Kin
		if err := row.Scan(&k.Number, &k.Of); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// PurgeBy chooses up to limit old tasks of a partition and has take delete them. If that succeeds it
// remembers how far the walk went. It returns how many tasks take touched.
func (r *reader) PurgeBy(ctx context.Context, partition int, detail, row core.Instant, limit int, take func(*Old) (int, error)) (int, error) {
	c, err := r.choose(ctx, partition, detail, row, limit)
	if err != nil {
		return 0, err
	}
	touched := 0
	if len(c.Rows) > 0 || c.moves || c.Partly {
		touched, err = take(&c)
	}
	if err == nil {
		r.purged.set(partition, c.place)
	}
	return touched, err
}

// oldTasks is what a walk found.
type oldTasks struct {
	numbers []int64
	labels  bool // some of them have labels
	// next is where the next walk goes on.
	next int64
}

// findOld goes through ended tasks in the order of their ends, from one on. It collects those that ended before a time, which are
// to be deleted, leaves out those that are kept for good, and stops at the first that is to be deleted later.
func (r *reader) findOld(ctx context.Context, query string, partition int, from int64, before core.Instant, limit int) (oldTasks, error) {
	old := oldTasks{next: from}
	for looked := 0; looked < purgeLook && len(old.numbers) < limit; {
		seen := 0
		for row := range each(r.query(ctx, query, partition, old.next, limit)) {
			var number, place, parent int64
			var ended instant
			var stays, labels int
			if err := row.Scan(&number, &place, &ended, &stays, &labels, &parent); err != nil {
				return old, fmt.Errorf("old task of partition %d: %w", partition, err)
			}
			seen++
			switch {
			case stays == stayLater, stays == stayNot && (core.Instant(ended) >= before || len(old.numbers) == limit),
				parent != 0 && slices.Contains(old.numbers, parent): // it ended after its parent, and goes after it
				return old, nil
			case stays == stayNot:
				old.numbers = append(old.numbers, number)
				old.labels = old.labels || labels > 0
			}
			old.next = place
			if query == qOldRows {
				old.next++ // its place is the first that is looked at
			}
		}
		// Fewer than asked for: the walk is at the end.
		if looked += seen; seen < limit {
			break
		}
	}
	return old, nil
}

// Statements of a purge, under the lock of the partition. They leave alone what was started again since it
// was chosen, or is in error now.
const (
	qForgetRows    = `DELETE FROM tasks WHERE `
	qForgetDetails = `SELECT number FROM tasks WHERE `
	qForgetJournal = `DELETE FROM journal WHERE `
	// qForgetLabels deletes the labels of deleted rows. A row's labels stay as long as it does, so that its
	// tombstone is found by them.
	qForgetLabels = `DELETE FROM labels WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.partition = labels.partition AND t.number = labels.number) AND `

	andOld  = ` AND ended_at < ?3 AND state IN ('processed', 'undone')`
	andDead = andOld + ` AND ` + isForgotten
)

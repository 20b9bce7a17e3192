package schema

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// What a task was made of is in its journal, the input in the first row: to forget
// it is to delete those rows. Its own row does not change. That it is forgotten is
// said once for many: partitions.forgotten is an end number, every ending up to
// which is forgotten, or belongs to a task in error, which stays for a person; when
// such a task ends otherwise, it gets a new end number.
//
// A child goes with its parent, whose undo may need it: its own end is passed over while
// the journal of its parent is there. When the parent's turn has come its journal goes
// first, with as many of its descendants as a purge takes, the deepest before the others:
// from then on it cannot be undone. Its end is passed when the last of them has gone, so
// that a purge which was cut off goes on there.

// purgeAgain is how often the old rows of a partition are looked at from the first on: a task that stayed, because it was
// in error, or had not ended, may have ended since.
const purgeAgain = time.Hour

// purgePlaces remembers how far the old rows of each partition are gone, so that
// a look for more does not walk over those that stay. It is a help only: without
// it, after a start, the first look walks once.
type purgePlaces struct {
	mu     sync.Mutex
	places map[int]purgePlace
}

// purgePlace is how far the rows of a partition are gone.
type purgePlace struct {
	number int64        // every row below is gone, or belonged to a task that stays
	from   core.Instant // what was old when the first row was looked at
}

// get returns the place for a look at rows that ended before an instant.
func (p *purgePlaces) get(partition int, old core.Instant) purgePlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is := p.places[partition]; old < is.from.Add(purgeAgain) {
		return is
	}
	return purgePlace{from: old}
}

func (p *purgePlaces) set(partition int, is purgePlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil {
		p.places = map[int]purgePlace{}
	}
	p.places[partition] = is
}

// forget begins again, at a takeover: another owner may have gone back in time
// with a restored database.
func (p *purgePlaces) forget(partition int) { p.set(partition, purgePlace{}) }

// Old is what a purge may take: it was found without holding the partition, and is checked
// again by the statements that take it.
type Old struct {
	Rows, Details []int64 // numbers of tasks
	Family        []Kin   // what goes with Details, if they go
	Partly        bool    // there is more of the family: the next purge goes on with it
	Labels        bool    // some of Rows have labels
	Forgotten     int64   // the end number up to which all will be forgotten

	place purgePlace
	moves bool // Forgotten is further than it stood
}

// Kin is a child, or a child of a child, of a task whose details are to be forgotten.
type Kin struct{ Number, Of int64 }

// Goes is what of a purge goes, of whose details those tasks are found to be old while the partition is held.
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

// The looks of a purge. Endings come in the order of their numbers, which is
// that of time but for milliseconds; the first one that is too young ends it.
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

// What the looks say of a task.
const (
	stayNot   = 0 // goes, if it is old enough
	stayKept  = 1 // stays: forgotten already, unfinished, or for a person to settle
	stayLater = 2 // its details go first
)

// purgeLook is how many tasks one look goes over at most.
const purgeLook = 20_000

// choose looks for up to limit old rows and as many tasks with old details.
func (r *reader) choose(ctx context.Context, partition int, detail, row core.Instant, limit int) (Old, error) {
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
	if c.Family, c.Partly, err = r.family(ctx, partition, old.numbers, limit); c.Partly {
		c.Forgotten, c.moves = forgotten[0], false
	}
	return c, err
}

// family are the children of tasks, and theirs, that ended before and whose journals are there: at most a limit of each
// depth. Where there are more, partly is true, and no child is among them of which another child is not.
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

// kin are children of some tasks, each with its parent.
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

// PurgeBy chooses up to limit tasks of a partition that are old, lets take take them, if
// there are any, and remembers how far that went. It returns how many tasks take touched.
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

// oldTasks are what a look found.
type oldTasks struct {
	numbers []int64
	labels  bool  // some of them have labels
	next    int64 // where the next look begins
}

// findOld goes over tasks in order from a place on, takes those that ended before a
// time, passes over those that stay, and stops at one that may go later.
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
		if looked += seen; seen < limit {
			break
		}
	}
	return old, nil
}

// Statements of a purge, while the partition is held. What was chosen and has
// been started again meanwhile, or belongs to a task in error now, stays.
const (
	qForgetRows    = `DELETE FROM tasks WHERE `
	qForgetDetails = `SELECT number FROM tasks WHERE `
	qForgetJournal = `DELETE FROM journal WHERE `
	// The labels of rows that are gone. They go with the row: until then its tombstone is found by them.
	qForgetLabels = `DELETE FROM labels WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.partition = labels.partition AND t.number = labels.number) AND `

	andOld  = ` AND ended_at < ?3 AND state IN ('processed', 'undone')`
	andDead = andOld + ` AND ` + isForgotten
)

package schema

import (
	"context"
	"fmt"
	"sync"

	"duly.dev/duly/internal/core"
)

// purgePlaces remembers how far the old tasks of each partition are forgotten,
// so that a look for more does not walk over those that are. It is a help only:
// without it, after a start, the first look walks once.
type purgePlaces struct {
	mu     sync.Mutex
	places map[int]purgePlace
}

// purgePlace: every told ending up to end is forgotten, or stays for a person;
// every row below number is gone, or belongs to a task that stays.
type purgePlace struct{ end, number int64 }

func (p *purgePlaces) get(partition int) purgePlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places[partition]
}

func (p *purgePlaces) set(partition int, place purgePlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil {
		p.places = map[int]purgePlace{}
	}
	p.places[partition] = place
}

// forget begins anew, at a takeover: another owner may have gone back in time
// with a restored database.
func (p *purgePlaces) forget(partition int) { p.set(partition, purgePlace{}) }

// purgeChoice is what a purge will take; it is looked for without holding the
// partition, and each of it is checked again when that is held.
type purgeChoice struct {
	rows, details []int64 // numbers of tasks
	next          purgePlace
}

// The looks of a purge. Endings come in the order of their numbers, which is
// that of time but for milliseconds; the first one that is too young ends it.
const (
	qOldDetails = `SELECT t.number, t.end_number, t.ended_at, CASE WHEN t.purged OR t.state = 'error' THEN 1 ELSE 0 END FROM tasks t
	WHERE t.partition = ?1 AND t.end_number > ?2 AND t.end_number <= (SELECT p.told FROM partitions p WHERE p.partition = ?1) ORDER BY t.end_number LIMIT ?3`
	qOldRows = `SELECT number, number, ended_at, CASE WHEN purged THEN 0 WHEN ended_at IS NULL OR state = 'error' THEN 1 ELSE 2 END FROM tasks
	WHERE partition = ?1 AND number >= ?2 ORDER BY number LIMIT ?3`
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
func (r *reader) choose(ctx context.Context, partition int, from purgePlace, detail, row core.Instant, limit int) (purgeChoice, error) {
	c := purgeChoice{next: from}
	var err error
	if row > 0 {
		if c.rows, c.next.number, err = r.old(ctx, qOldRows, partition, from.number, row, limit); err != nil {
			return c, err
		}
	}
	if detail > 0 {
		c.details, c.next.end, err = r.old(ctx, qOldDetails, partition, from.end, detail, limit)
	}
	return c, err
}

// purge chooses what is old, lets forget take it, if there is any, and remembers
// how far that went. It returns how many tasks forget touched.
func (r *reader) purge(ctx context.Context, partition int, detail, row core.Instant, limit int, forget func(*purgeChoice) (int, error)) (int, error) {
	c, err := r.choose(ctx, partition, r.purged.get(partition), detail, row, limit)
	if err != nil {
		return 0, err
	}
	touched := 0
	if len(c.rows)+len(c.details) > 0 {
		touched, err = forget(&c)
	}
	if err == nil {
		r.purged.set(partition, c.next)
	}
	return touched, err
}

// old goes over tasks in order, takes those that ended before a time, passes
// over those that stay, and stops at one that may go later. It returns the place
// where the next look begins.
func (r *reader) old(ctx context.Context, query string, partition int, from int64, before core.Instant, limit int) ([]int64, int64, error) {
	var numbers []int64
	for looked := 0; looked < purgeLook && len(numbers) < limit; {
		rows, err := r.query(ctx, query, partition, from, limit)
		if err != nil {
			return nil, 0, fmt.Errorf("old tasks of partition %d: %w", partition, err)
		}
		seen := 0
		for rows.Next() {
			var number, place int64
			var ended instant
			var stays int
			if err := rows.Scan(&number, &place, &ended, &stays); err != nil {
				rows.Close()
				return nil, 0, fmt.Errorf("old task of partition %d: %w", partition, err)
			}
			seen++
			switch {
			case stays == stayLater, stays == stayNot && (core.Instant(ended) >= before || len(numbers) == limit):
				rows.Close()
				return numbers, from, nil
			case stays == stayNot:
				numbers = append(numbers, number)
			}
			from = place
			if query == qOldRows {
				from++ // its place is the first that is looked at
			}
		}
		if err := rows.Err(); err != nil {
			return nil, 0, fmt.Errorf("old tasks of partition %d: %w", partition, err)
		}
		if looked += seen; seen < limit {
			break
		}
	}
	return numbers, from, nil
}

// Statements of a purge, while the partition is held. What was chosen and has
// been started again meanwhile, or belongs to a task in error now, stays.
const (
	qForgetRows    = `DELETE FROM tasks WHERE partition = ?1 AND purged AND ended_at < ?3 AND number `
	qForgetDetails = `UPDATE tasks SET purged = TRUE, input = NULL WHERE partition = ?1 AND ended_at < ?3 AND NOT purged AND state IN ('processed', 'undone') AND number `
	qForgotten     = ` RETURNING number`
	qForgetJournal = `DELETE FROM journal WHERE partition = ?1 AND number `
)

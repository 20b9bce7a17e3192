package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// An index of parent, parent_step and number has the children of a step in the order of their birth. A round
// of the parent makes new children with higher numbers; the queries begin at the first child of the round
// that is asked about (?4, its id).

const (
	siblings  = ` FROM tasks WHERE partition = ?1 AND parent = ?2 AND parent_step = ?3 AND number >= (SELECT f.number FROM tasks f WHERE f.partition = ?1 AND f.id = ?4)`
	childRow  = `SELECT number, child_index, state, ended_at, 0, 0 FROM (SELECT number, child_index, state, ended_at` + siblings
	childAsOf = asOfFound + `0, 0, '', NULL` + asOfRow
	qChildren = childRow + ` AND number > ?5 ORDER BY number LIMIT ?6` + childAsOf
	qYoungest = childRow + ` AND number < ?5 ORDER BY number DESC LIMIT ?6` + childAsOf
	qSiblings = `SELECT state, left_over, count(*), max(child_index), 0, 0 FROM (SELECT state, child_index, CASE WHEN ended_at < ?5 THEN 1 ELSE 0 END AS left_over` + siblings +
		`) AS found GROUP BY state, left_over UNION ALL SELECT '', 0, 0, 0` + asOfRow
)

// Children implements Store.
func (r *reader) Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error) {
	all, err := r.children(ctx, qChildren, as, of, after, limit)
	slices.SortFunc(all, func(a, b core.ChildRow) int { return cmp.Compare(a.Number, b.Number) })
	return all, err
}

// Youngest implements Store.
func (r *reader) Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error) {
	all, err := r.children(ctx, qYoungest, as, of, below, limit)
	slices.SortFunc(all, func(a, b core.ChildRow) int { return cmp.Compare(b.Number, a.Number) })
	return all, err
}

// children runs one of the two queries above. The row without a number that ends the result is the
// partition's own, as of the same moment: as.Check compares it with what the caller owns.
func (r *reader) children(ctx context.Context, query string, as core.AsOf, of core.Siblings, from int64, limit int) ([]core.ChildRow, error) {
	var all []core.ChildRow
	for row := range each(r.query(ctx, query, as.Partition, of.Parent, of.Step, of.First, from, limit)) {
		var c core.ChildRow
		var state string
		var ended instant
		var epoch, commit int64
		if err := row.Scan(&c.Number, &c.Index, &state, &ended, &epoch, &commit); err != nil {
			return nil, fmt.Errorf("children of task number %d of partition %d: %w", of.Parent, as.Partition, err)
		}
		if c.State, c.Ended = core.State(state), core.Instant(ended); c.Number != 0 {
			all = append(all, c)
		} else if err := as.Check(epoch, commit); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ChildCounts implements Store.
func (r *reader) ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error) {
	var all core.ChildCounts
	for row := range each(r.query(ctx, qSiblings, as.Partition, of.Parent, of.Step, of.First, r.time(of.Since))) {
		var state string
		var left, n, last int
		var epoch, commit int64
		if err := row.Scan(&state, &left, &n, &last, &epoch, &commit); err != nil {
			return all, fmt.Errorf("children of task number %d of partition %d: %w", of.Parent, as.Partition, err)
		}
		if state != "" {
			all.Add(core.State(state), n, last, left != 0)
		} else if err := as.Check(epoch, commit); err != nil {
			return all, err
		}
	}
	return all, nil
}

// childStep is the next step of a parent that has children.
const childStep = `SELECT parent_step FROM tasks WHERE partition = ?1 AND parent = ?2 AND parent_step > ?3 ORDER BY parent_step LIMIT 1`

// childSources returns a source per step of the task that has children, and their partition. There is none
// when the task is unknown or childless.
func (r *reader) childSources(ctx context.Context, id string) (partition int64, all []source, err error) {
	var parent int64
	err = r.db.QueryRowContext(ctx, r.params(`SELECT partition, number FROM tasks WHERE id = ?1 ORDER BY partition LIMIT 1`), id).Scan(&partition, &parent)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("parent %s: %w", core.QuoteShort(id), err)
	}
	for step := int64(-1); ; {
		next, err := column[int64](ctx, r, childStep, partition, parent, step)
		if err != nil {
			return 0, nil, fmt.Errorf("children of %s: %w", core.QuoteShort(id), err)
		}
		if len(next) == 0 {
			return partition, all, nil
		}
		step = next[0]
		all = append(all, func(c *conditions) fromWhere {
			return inTasks(fmt.Sprintf(`partition = ?1 AND parent = %s AND parent_step = %s`, c.param(parent), c.param(next[0])))
		})
	}
}

// ancestors returns the task's parent, its parent's, and so on up to the root. It stops at a parent whose row
// is gone.
func (r *reader) ancestors(ctx context.Context, partition int, t *core.Task) (all []core.TaskName, err error) {
	for number := t.Parent; number != 0 && len(all) < core.ChildDepthMax; {
		var up core.TaskName
		err := r.db.QueryRowContext(ctx, r.params(`SELECT id, type, COALESCE(parent, 0) FROM tasks WHERE partition = ?1 AND number = ?2`), partition, number).Scan(&up.ID, &up.Type, &number)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("parents of task %s: %w", t.ID, err)
		}
		all = append(all, up)
	}
	return all, nil
}

// countChildren adds to each parent step of a view how its children of this round stand.
func (r *reader) countChildren(ctx context.Context, v *core.View) error {
	for i := range v.Steps {
		s := &v.Steps[i]
		if !s.Kind.Parent() || s.At == 0 {
			continue
		}
		first := core.ChildID(v.ID, s.Name, 0, v.Round, s.Kind == core.EachStep)
		var err error
		if s.Children, err = r.ChildCounts(ctx, core.AsOf{Partition: v.Partition}, core.Siblings{Parent: v.Number, Step: i, First: first}); err != nil {
			return err
		}
	}
	return nil
}

// qFresh reads pending tasks that certain commits wrote, see [Store.Fresh], and the partition's row.
const qFresh = `SELECT number, type, 0, 0 FROM (SELECT number, type FROM tasks WHERE partition = ?1 AND number >= ?2 AND commit_id > ?3 AND commit_id <= ?4 AND state = 'pending'` + asOfFound + `0, ''` + asOfRow

// Fresh implements [Store.Fresh].
func (r *reader) Fresh(ctx context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error) {
	var all []core.Fresh
	for row := range each(r.query(ctx, qFresh, as.Partition, from, after, last)) {
		var t core.Fresh
		var epoch, commit int64
		if err := row.Scan(&t.Number, &t.Type, &epoch, &commit); err != nil {
			return nil, fmt.Errorf("tasks of commit %d of partition %d: %w", last, as.Partition, err)
		}
		if t.Number != 0 {
			all = append(all, t)
		} else if err := as.Check(epoch, commit); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b core.Fresh) int { return cmp.Compare(a.Number, b.Number) })
	return all, nil
}

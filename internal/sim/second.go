package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Second is a real state store under the simulator's port: whatever nodes and supervisors read and write goes to it and to
// [MemStore], and what comes of it has to be the same. Limits and breakers are in MemStore alone.
type Second interface {
	scheduler.Store
	Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error)
	Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error)
	Cursors(ctx context.Context) ([]core.PartitionState, error)
	PutPlan(ctx context.Context, p core.Plan) error
	Close() error
}

// second is the other store of a world, with all that was written to it, in order: an older state is made from that.
type second struct {
	store Second
	open  func() Second
	done  []func(Second)
}

// write does something to the store, and keeps how.
func (s *second) write(again func(Second)) { s.done = append(s.done, again) }

// goBack makes the store what it was after so many writes.
func (s *second) goBack(writes int) {
	_ = s.store.Close() // it is not used again
	s.store, s.done = s.open(), s.done[:writes]
	for _, again := range s.done {
		again(s.store)
	}
}

// tables are the state store of a world: one, or two that are held to each other.
type tables struct {
	*MemStore
	w *World
}

func (w *World) tables() tables { return tables{w.Store, w} }

// same asks the second store as well, and holds its answer to that of the first. The second one's counts.
func same[T any](t tables, what string, one T, err error, ask func(Second) (T, error)) (T, error) {
	if t.w.second == nil {
		return one, err
	}
	other, otherErr := ask(t.w.second.store)
	for _, is := range []error{core.ErrForeignRow, core.ErrOvertaken} {
		if errors.Is(err, is) && errors.Is(otherErr, is) {
			return other, otherErr
		}
	}
	if err != nil || otherErr != nil {
		t.w.wrong(-1, "", "%s: the stores differ: %v; %v", what, err, otherErr)
	} else if at := difference(what, reflect.ValueOf(&one).Elem(), reflect.ValueOf(&other).Elem()); at != "" {
		t.w.wrong(-1, "", "the stores differ: %s", at)
	}
	return other, otherErr
}

// difference is where two values differ first, for which an empty slice is none; empty: nowhere.
func difference(path string, a, b reflect.Value) string {
	switch a.Kind() {
	case reflect.Slice:
		if a.Len() != b.Len() {
			return fmt.Sprintf("%s: %d and %d: %+v and %+v", path, a.Len(), b.Len(), a, b)
		}
		for i := range a.Len() {
			if at := difference(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); at != "" {
				return at
			}
		}
		return ""
	case reflect.Struct:
		for i := range a.NumField() {
			if at := difference(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); at != "" {
				return at
			}
		}
		return ""
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return ""
	}
	return fmt.Sprintf("%s: %+v and %+v", path, a, b)
}

func (t tables) TakeOver(ctx context.Context, p int, c core.Claim) (core.PartitionState, error) {
	one, err := t.MemStore.TakeOver(ctx, p, c)
	if t.w.second != nil {
		t.w.second.write(func(s Second) { _, _ = s.TakeOver(ctx, p, c) })
	}
	return same(t, "takeover", one, err, func(s Second) (core.PartitionState, error) { return s.TakeOver(ctx, p, c) })
}

func (t tables) Release(ctx context.Context, p int, epoch int64) error {
	if t.w.second != nil {
		t.w.second.write(func(s Second) { _ = s.Release(ctx, p, epoch) })
	}
	_, err := same(t, "release", 0, t.MemStore.Release(ctx, p, epoch), func(s Second) (int, error) { return 0, s.Release(ctx, p, epoch) })
	return err
}

// Commit writes to the second store what the first has taken.
func (t tables) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	one, err := t.MemStore.Commit(ctx, b)
	if t.w.second == nil || err != nil {
		return one, err
	}
	kept := cloneBatch(b)
	t.w.second.write(func(s Second) { _, _ = s.Commit(ctx, kept) })
	return same(t, "commit", one, err, func(s Second) (core.CommitResult, error) {
		res, err := s.Commit(ctx, b)
		slices.Sort(res.Fenced)
		slices.Sort(one.Fenced)
		return res, err
	})
}

// cloneBatch is a copy that its maker does not use again.
func cloneBatch(b *core.Batch) *core.Batch {
	c := *b
	c.Partitions, c.Writes = slices.Clone(b.Partitions), slices.Clone(b.Writes)
	for i := range c.Writes {
		t := *c.Writes[i].Task
		t.Steps, t.Input = slices.Clone(t.Steps), bytes.Clone(t.Input)
		c.Writes[i].Task, c.Writes[i].Records = &t, slices.Clone(c.Writes[i].Records)
	}
	return &c
}

func (t tables) Purge(ctx context.Context, p int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	one, err := t.MemStore.Purge(ctx, p, epoch, detail, row, limit)
	if t.w.second != nil {
		t.w.second.write(func(s Second) { _, _ = s.Purge(ctx, p, epoch, detail, row, limit) })
	}
	return same(t, "purge", one, err, func(s Second) (int, error) { return s.Purge(ctx, p, epoch, detail, row, limit) })
}

func (t tables) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	one, err := t.MemStore.LoadNumbers(ctx, as, numbers)
	return same(t, "tasks by number", one, err, func(s Second) ([]core.Saved, error) { return byNumber(s.LoadNumbers(ctx, as, numbers)) })
}

func (t tables) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	one, err := t.MemStore.LoadIDs(ctx, as, ids)
	return same(t, "tasks by id", one, err, func(s Second) ([]core.Saved, error) { return byNumber(s.LoadIDs(ctx, as, ids)) })
}

// byNumber puts tasks in an order, where a store may have any.
func byNumber(all []core.Saved, err error) ([]core.Saved, error) {
	slices.SortFunc(all, func(a, b core.Saved) int { return cmp.Compare(a.Row.Number, b.Row.Number) })
	return all, err
}

func (t tables) LoadActive(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Saved, error) {
	one, err := t.MemStore.LoadActive(ctx, as, after, limit)
	return same(t, "active tasks", one, err, func(s Second) ([]core.Saved, error) { return s.LoadActive(ctx, as, after, limit) })
}

func (t tables) Waiting(ctx context.Context, as core.AsOf, agent string, after int64, limit int) ([]int64, error) {
	one, err := t.MemStore.Waiting(ctx, as, agent, after, limit)
	return same(t, "parked tasks", one, err, func(s Second) ([]int64, error) { return s.Waiting(ctx, as, agent, after, limit) })
}

func (t tables) WaitingAgents(ctx context.Context, as core.AsOf) ([]string, error) {
	one, err := t.MemStore.WaitingAgents(ctx, as)
	slices.Sort(one)
	return same(t, "agents waited for", one, err, func(s Second) ([]string, error) {
		all, err := s.WaitingAgents(ctx, as)
		slices.Sort(all)
		return all, err
	})
}

func (t tables) Untold(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Ending, error) {
	one, err := t.MemStore.Untold(ctx, as, after, limit)
	return same(t, "endings", one, err, func(s Second) ([]core.Ending, error) { return s.Untold(ctx, as, after, limit) })
}

func (t tables) Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error) {
	one, err := t.MemStore.Children(ctx, as, of, after, limit)
	return same(t, "children", one, err, func(s Second) ([]core.ChildRow, error) { return s.Children(ctx, as, of, after, limit) })
}

func (t tables) Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error) {
	one, err := t.MemStore.Youngest(ctx, as, of, below, limit)
	return same(t, "youngest children", one, err, func(s Second) ([]core.ChildRow, error) { return s.Youngest(ctx, as, of, below, limit) })
}

func (t tables) ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error) {
	one, err := t.MemStore.ChildCounts(ctx, as, of)
	return same(t, "counts of children", one, err, func(s Second) (core.ChildCounts, error) { return s.ChildCounts(ctx, as, of) })
}

func (t tables) Fresh(ctx context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error) {
	one, err := t.MemStore.Fresh(ctx, as, from, after, last)
	return same(t, "new tasks", one, err, func(s Second) ([]core.Fresh, error) { return s.Fresh(ctx, as, from, after, last) })
}

// CursorsOf compares without the partitions that nobody has taken over yet: a store may have no row of them.
func (t tables) CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	one, err := t.MemStore.CursorsOf(ctx, partitions, owner)
	all := one
	_, err = same(t, "cursors", taken(one), err, func(s Second) ([]core.PartitionState, error) {
		var err error
		all, err = s.CursorsOf(ctx, partitions, owner)
		return taken(all), err
	})
	return all, err
}

func taken(all []core.PartitionState) []core.PartitionState {
	all = slices.DeleteFunc(slices.Clone(all), func(st core.PartitionState) bool { return st.Epoch == 0 })
	slices.SortFunc(all, func(a, b core.PartitionState) int { return cmp.Compare(a.Partition, b.Partition) })
	return all
}

func (t tables) Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error) {
	one, err := t.MemStore.Overdue(ctx, since, now, after, limit)
	var all []core.Due
	_, err = same(t, "overdue tasks", one, err, func(s Second) ([]core.Due, error) {
		var err error
		all, err = s.Overdue(ctx, since, now, after, limit)
		one := slices.Clone(all)
		for i := range one {
			one[i].Step = "" // which the memory does not look for
		}
		return one, err
	})
	if all != nil {
		one = all
	}
	return one, err
}

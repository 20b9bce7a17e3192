package scheduler

import (
	"context"
	"errors"
	"slices"

	"duly.dev/duly/internal/core"
)

// sortedStore is the state store whose errors say what they stop. A read of one partition that fails stops that
// partition, unless the store says itself that it is the store which does not answer. All else stops the store: plans are
// every partition's, and after a commit that failed nothing is known of any.
type sortedStore struct{ Store }

// ofPartition says of a read's error that it stops the partition that was read.
func ofPartition[T any](partition int, is T, err error) (T, error) {
	return is, core.StoppingPartition(partition, err)
}

// LoadActive implements Store.
func (s sortedStore) LoadActive(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Saved, error) {
	is, err := s.Store.LoadActive(ctx, as, after, limit)
	return ofPartition(as.Partition, is, err)
}

// LoadNumbers implements Store.
func (s sortedStore) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	is, err := s.Store.LoadNumbers(ctx, as, numbers)
	return ofPartition(as.Partition, is, err)
}

// LoadIDs implements Store.
func (s sortedStore) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	is, err := s.Store.LoadIDs(ctx, as, ids)
	return ofPartition(as.Partition, is, err)
}

// Untold implements Store.
func (s sortedStore) Untold(ctx context.Context, as core.AsOf, after int64, limit int) ([]core.Ending, error) {
	is, err := s.Store.Untold(ctx, as, after, limit)
	return ofPartition(as.Partition, is, err)
}

// Waiting implements Store.
func (s sortedStore) Waiting(ctx context.Context, as core.AsOf, agent string, after int64, limit int) ([]int64, error) {
	is, err := s.Store.Waiting(ctx, as, agent, after, limit)
	return ofPartition(as.Partition, is, err)
}

// Children implements Store.
func (s sortedStore) Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error) {
	is, err := s.Store.Children(ctx, as, of, after, limit)
	return ofPartition(as.Partition, is, err)
}

// Youngest implements Store.
func (s sortedStore) Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error) {
	is, err := s.Store.Youngest(ctx, as, of, below, limit)
	return ofPartition(as.Partition, is, err)
}

// ChildCounts implements Store.
func (s sortedStore) ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error) {
	is, err := s.Store.ChildCounts(ctx, as, of)
	return ofPartition(as.Partition, is, err)
}

// stop lets go of the one partition that an error stops, with what the round would have written of it. It reports false
// when the error stops more.
func (s *Shard) stop(err error) bool {
	f := core.FaultOf(err)
	p := s.partitions[f.Partition]
	if f.Stops != core.StopsPartition || p == nil {
		return false
	}
	s.cycle.noteStopped(p.id, err)
	for _, e := range p.tasks {
		e.refused()
	}
	s.cycle.takeBack(p, &s.owned)
	s.lose(p)
	return true
}

// noteStopped notes what has stopped a partition, unless that is a successor.
func (c *cycle) noteStopped(partition int, err error) {
	if errors.Is(err, core.ErrOvertaken) {
		return
	}
	c.stopped = append(c.stopped, partition)
	c.failed = errors.Join(c.failed, err)
}

// fenceStopped is Shard.stop for an error in the middle of a commit: the partition is let go as if it had been fenced.
func (c *cycle) fenceStopped(err error) (core.CommitResult, error) {
	f := core.FaultOf(err)
	if f.Stops != core.StopsPartition {
		return core.CommitResult{}, err
	}
	c.noteStopped(f.Partition, err)
	return core.CommitResult{Fenced: []int{f.Partition}}, nil
}

// takeBack removes a partition's writes from the batch.
func (c *cycle) takeBack(p *partition, in *owned) {
	place, kept := make([]int, len(c.batch.Writes)+1), 0
	for i := range c.batch.Writes {
		w := c.batch.Writes[i]
		if w.Task.Partition == p.id {
			c.bytes -= w.Size()
			continue
		}
		c.batch.Writes[kept] = w
		kept++
		place[i+1] = kept
	}
	clear(c.batch.Writes[kept:])
	c.batch.Writes = c.batch.Writes[:kept]
	moved := map[*entry]bool{}
	move := func(e *entry) {
		if e != nil && !moved[e] {
			moved[e], e.write = true, place[e.write]
		}
	}
	for _, x := range c.touched {
		move(x.e)
	}
	for i := range c.batch.Writes {
		move(in.stored(&c.batch.Writes[i]))
	}
	c.touched = slices.DeleteFunc(c.touched, func(x touch) bool { return x.p == p })
}

package scheduler

import (
	"context"

	"duly.dev/duly/internal/core"
)

// sortedStore wraps a state store so that its errors say what they stop; see core.Fault. A read of one
// partition that fails stops that partition, unless the store says that it does not answer at all. Everything
// else stops the store: plans concern every partition, and after a failed commit nothing is known of any.
type sortedStore struct{ Store }

// ofPartition marks the error of a read as one that stops only the partition that was read.
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

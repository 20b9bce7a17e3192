package postgres_test

import (
	"context"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
)

// What does not reach the server, or is called once because Commit itself comes back with the outcome.

func (p patient) Close() error                { return p.Store.Close() }
func (p patient) Dialect() string             { return p.Store.Dialect() }
func (p patient) Version() string             { return p.Store.Version() }
func (p patient) Trouble() (time.Time, error) { return p.Store.Trouble() }
func (p patient) ChainHeads() []chain.Head    { return p.Store.ChainHeads() }
func (p patient) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	return p.Store.Commit(ctx, b)
}

func (p patient) Chain(ctx context.Context) (chain.Source, error) {
	return retried(ctx, func() (chain.Source, error) { return p.Store.Chain(ctx) })
}

func (p patient) ChainEnds(ctx context.Context) (map[int]int64, error) {
	return retried(ctx, func() (map[int]int64, error) { return p.Store.ChainEnds(ctx) })
}

func (p patient) Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error) {
	return retried(ctx, func() ([]core.ChildRow, error) { return p.Store.Children(ctx, as, of, after, limit) })
}

func (p patient) Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error) {
	return retried(ctx, func() ([]core.ChildRow, error) { return p.Store.Youngest(ctx, as, of, below, limit) })
}

func (p patient) ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error) {
	return retried(ctx, func() (core.ChildCounts, error) { return p.Store.ChildCounts(ctx, as, of) })
}

func (p patient) Deprecated(ctx context.Context) (core.Deprecations, error) {
	return retried(ctx, func() (core.Deprecations, error) { return p.Store.Deprecated(ctx) })
}

// Deprecate is the same when it is called again: a mark keeps its time.
func (p patient) Deprecate(ctx context.Context, name string, version int64, at core.Instant) error {
	return retriedDo(ctx, func() error { return p.Store.Deprecate(ctx, name, version, at) })
}

func (p patient) Fresh(ctx context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error) {
	return retried(ctx, func() ([]core.Fresh, error) { return p.Store.Fresh(ctx, as, from, after, last) })
}

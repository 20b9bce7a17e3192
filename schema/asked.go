package schema

import (
	"context"
	"database/sql"

	"duly.dev/duly/internal/core"
)

// running is the reader of what runs all the time; asked, embedded beside it, takes
// precedence.
type running struct{ reader }

// asked answers those who ask, over connections of its own. Plans are made for each
// question there: what makes those of commits cheap would make these slow.
type asked struct {
	of         *reader
	changing   *counted         // writes what operators change
	rolledBack func(error) bool // see Dialect
	snapshot   *sql.TxOptions   // see Dialect
}

// Get implements Store.
func (a *asked) Get(ctx context.Context, partition int, id string) (core.View, error) {
	return a.of.Get(ctx, partition, id)
}

// List implements Store.
func (a *asked) List(ctx context.Context, f core.Filter) (core.Page, error) { return a.of.List(ctx, f) }

// Counts implements Store.
func (a *asked) Counts(ctx context.Context) ([]core.Count, error) { return a.of.Counts(ctx) }

// CountsUpTo implements Store.
func (a *asked) CountsUpTo(ctx context.Context, most int) ([]core.Count, error) {
	return a.of.CountsUpTo(ctx, most)
}

// Journal implements Store.
func (a *asked) Journal(ctx context.Context, partition int, number int64) ([]core.Record, error) {
	return a.of.Journal(ctx, partition, number)
}

// Books implements Store.
func (a *asked) Books(ctx context.Context) (Books, error) { return a.of.Books(ctx) }

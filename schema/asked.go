package schema

import (
	"context"
	"database/sql"

	"duly.dev/duly/internal/core"
)

// running is the reader for the owners of partitions. [Base] embeds it beside asked, whose methods are
// declared on the struct itself and so win over those that running promotes from reader: what both have,
// people reach through asked.
type running struct{ reader }

// asked is the store's side for people: it reads lists and counts over connections of its own, so that no
// commit waits behind a long question, and writes what operators change. PostgreSQL plans each of its
// statements anew; the session settings that keep commits cheap would make these slow.
type asked struct {
	// of reads over the connections for people.
	of *reader
	// changing writes what operators change.
	changing *counted
	// rolledBack reports whether a failed transaction changed nothing and may be tried again. See Dialect.
	rolledBack func(error) bool
	// snapshot are the options of a transaction that sees one moment throughout. See Dialect.
	snapshot *sql.TxOptions
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

package schema

import (
	"context"
	"database/sql"
	"sync/atomic"
)

// counted is a database whose questions are counted: each statement once, or each transaction as one.
type counted struct {
	*sql.DB
	slots *actorSlots // of those who ask; nil: none of them waits for another
	n     atomic.Int64
}

// QueryContext counts one.
func (c *counted) QueryContext(ctx context.Context, query string, args ...any) (rowSet, error) {
	leave, err := c.slots.take(ctx)
	if err != nil {
		return nil, err
	}
	c.n.Add(1)
	rows, err := c.DB.QueryContext(ctx, query, args...)
	if err != nil {
		leave()
		return nil, err
	}
	return slotRows{rows, leave}, nil
}

// QueryRowContext counts one. Its one row is there when it returns.
func (c *counted) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if leave, err := c.slots.take(ctx); err == nil { // what has ended is for the database to say
		defer leave()
	}
	c.n.Add(1)
	return c.DB.QueryRowContext(ctx, query, args...)
}

// BeginTx counts one.
func (c *counted) BeginTx(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
	c.n.Add(1)
	return c.DB.BeginTx(ctx, o)
}

// Queries are how many statements, or transactions, went through each of the handles of NewBase but the first: what owners
// read, what those who ask read, and what they changed.
func (b *Base) Queries() (reading, asking, changing int64) {
	return b.running.db.n.Load(), b.asked.of.db.n.Load(), b.asked.changing.n.Load()
}

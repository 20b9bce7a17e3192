package schema

import (
	"context"
	"database/sql"
	"sync/atomic"
)

// counted is a database handle that counts what goes through it, a statement or a whole transaction as one,
// and holds an actor's questions to AskingEach at a time.
type counted struct {
	*sql.DB
	// slots is nil where nobody has to wait for another: on the owners' handle.
	slots *actorSlots
	n     atomic.Int64
}

// QueryContext counts the query and takes a slot, which the rows give back when they are read or closed.
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

// QueryRowContext counts the query. It needs its slot only until it returns, because by then database/sql has
// read the row.
func (c *counted) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if leave, err := c.slots.take(ctx); err == nil { // if ctx has ended, the query below returns its error
		defer leave()
	}
	c.n.Add(1)
	return c.DB.QueryRowContext(ctx, query, args...)
}

// BeginTx counts the transaction. It takes no slot: the changes of operators are short.
func (c *counted) BeginTx(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
	c.n.Add(1)
	return c.DB.BeginTx(ctx, o)
}

// Queries returns how many statements and transactions went through the handles of NewBase since the start,
// but for the writer's.
func (b *Base) Queries() (reading, asking, changing int64) {
	return b.running.db.n.Load(), b.asked.of.db.n.Load(), b.asked.changing.n.Load()
}

package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// changeTries bounds how often a change of operators is made again that gave way to another.
const changeTries = 20

// changes are one transaction that writes what operators change.
type changes struct {
	ctx   context.Context
	r     *reader
	tx    *sql.Tx
	wrote *int64 // rows
}

// change makes changes. What gives way to another is tried again; whether one happened of which the
// connection was lost is for its caller to find out. A change of [operate.EntryOf] its context is stored with the outcome
// of the entry; operate.Settled: the entry has another one, and nothing was changed.
func (a *asked) change(ctx context.Context, do func(changes) error) error {
	for try := 1; ; try++ {
		err := a.changeOnce(ctx, do)
		if err == nil || try == changeTries || a.rolledBack == nil || !a.rolledBack(err) {
			return err
		}
		if ended := Pause(ctx, try); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

func (a *asked) changeOnce(ctx context.Context, do func(changes) error) error {
	tx, err := a.changing.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	c, entry := changes{ctx, a.of, tx, new(int64)}, operate.EntryOf(ctx)
	err = do(c)
	if made := entry != nil && *c.wrote > 0; err == nil && made {
		err = c.settle(entry.Number, operate.WasMade)
	}
	if err != nil {
		_ = tx.Rollback() // the database may have done so by itself, and then refuses it
		return err
	}
	if err = tx.Commit(); entry != nil && err == nil {
		entry.Done = entry.Done || *c.wrote > 0
	}
	return err
}

// exec runs a statement and returns how many rows it changed.
func (c changes) exec(query string, args ...any) (int64, error) {
	res, err := c.tx.ExecContext(c.ctx, c.r.params(query), args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	*c.wrote += n
	return n, err
}

// query reads the rows of a query, see each.
func (c changes) query(ctx context.Context, query string, args ...any) (rowSet, error) {
	return c.tx.QueryContext(ctx, c.r.params(query), args...)
}

// row reads the one row of a query. Error: sql.ErrNoRows.
func (c changes) row(query string, args []any, into ...any) error {
	return c.tx.QueryRowContext(c.ctx, c.r.params(query), args...).Scan(into...)
}

// qNextNumber gives the next number of a table. Others that want one wait until this transaction has
// ended, so that numbers come in the order of commits.
const qNextNumber = `INSERT INTO numbers (name, last) VALUES (?1, 1) ON CONFLICT (name) DO UPDATE SET last = numbers.last + 1 RETURNING last`

func (c changes) nextNumber(table string) (number int64, err error) {
	err = c.row(qNextNumber, []any{table}, &number)
	return number, err
}

// execOne runs a statement by itself and returns how many rows it changed.
func (a *asked) execOne(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = a.change(ctx, func(c changes) error {
		n, err = c.exec(query, args...)
		return err
	})
	return n, err
}

// when is a time as it is stored; nil for none.
func (r *reader) when(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return r.time(core.InstantOf(t))
}

// whenNot0 is an instant as a parameter; 0 is NULL.
func (r *reader) whenNot0(at core.Instant) any {
	if at == 0 {
		return nil
	}
	return r.time(at)
}

// timeOf is a time that was read.
func (i instant) timeOf() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return core.Instant(i).Time()
}

// someBytes is NULL for none.
func someBytes(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// prefixed is the condition that a column of bytes begins with a prefix.
func (c *conditions) prefixed(column, prefix string) {
	c.add(column+` >= %s`, []byte(prefix))
	if end := afterPrefix(prefix); end != nil {
		c.add(column+` < %s`, end)
	}
}

// afterPrefix is the first value after all that begin with a prefix; nil: there is none.
func afterPrefix(prefix string) []byte {
	for end := []byte(prefix); len(end) > 0; end = end[:len(end)-1] {
		if last := &end[len(end)-1]; *last < 0xff {
			*last++
			return end
		}
	}
	return nil
}

// notThere is core.ErrNotFound about what a name names.
func notThere(what, name string) error {
	return fmt.Errorf("%s %s: %w", what, core.QuoteShort(name), core.ErrNotFound)
}

// lookUp reads the one row of a query, of what a name names. Error: core.ErrNotFound.
func lookUp[T any](ctx context.Context, a *asked, what, name string, scan func(row interface{ Scan(...any) error }) (T, error), query string, args ...any) (T, error) {
	is, err := scan(a.of.db.QueryRowContext(ctx, a.of.params(query), args...))
	if errors.Is(err, sql.ErrNoRows) {
		return is, notThere(what, name)
	}
	return is, about(err, "%s %s", what, core.QuoteShort(name))
}

// about is an error with what it is about; nil is none.
func about(err error, format string, values ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(values, err)...)
}

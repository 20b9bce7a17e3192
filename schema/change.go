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

// changeTries is how often change runs a transaction that the database rolls back in favour of another.
const changeTries = 20

// changes is a transaction under way that writes what operators change.
type changes struct {
	ctx context.Context
	r   *reader
	tx  *sql.Tx
	// wrote counts the rows that exec changed.
	wrote *int64
}

// change runs do in a transaction, and again when the database rolled it back in favour of another. When the
// connection breaks during the commit, it returns the error although the commit may stand: the caller has to
// find out.
//
// If ctx carries an audit entry ([operate.EntryOf]) and do changed rows, the same transaction stores the
// entry's outcome. An entry that has another outcome already makes change fail with operate.Settled and
// change nothing.
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

// changeOnce is one try of change.
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

// query runs a query in the transaction. Read the rows with each.
func (c changes) query(ctx context.Context, query string, args ...any) (rowSet, error) {
	return c.tx.QueryContext(ctx, c.r.params(query), args...)
}

// row reads the one row of a query into into. Error: sql.ErrNoRows when there is none.
func (c changes) row(query string, args []any, into ...any) error {
	return c.tx.QueryRowContext(c.ctx, c.r.params(query), args...).Scan(into...)
}

// qNextNumber counts a table's numbers up. The row stays locked until the transaction ends, so that a lower
// number is never committed after a higher one.
const qNextNumber = `INSERT INTO numbers (name, last) VALUES (?1, 1) ON CONFLICT (name) DO UPDATE SET last = numbers.last + 1 RETURNING last`

// nextNumber draws the next number of a table.
func (c changes) nextNumber(table string) (number int64, err error) {
	err = c.row(qNextNumber, []any{table}, &number)
	return number, err
}

// execOne runs one statement as a transaction of its own. It returns how many rows changed.
func (a *asked) execOne(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = a.change(ctx, func(c changes) error {
		n, err = c.exec(query, args...)
		return err
	})
	return n, err
}

// when is a time as a parameter; the zero time is NULL.
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

// timeOf is a scanned time; NULL was scanned as 0 and is the zero time.
func (i instant) timeOf() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return core.Instant(i).Time()
}

// someBytes is b as a parameter; an empty one is NULL.
func someBytes(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// prefixed adds the condition that a column of bytes begins with prefix, as a range that an index can serve.
func (c *conditions) prefixed(column, prefix string) {
	c.add(column+` >= %s`, []byte(prefix))
	if end := afterPrefix(prefix); end != nil {
		c.add(column+` < %s`, end)
	}
}

// afterPrefix is the least value above all that begin with prefix; nil when there is none, because prefix is
// all 0xff.
func afterPrefix(prefix string) []byte {
	for end := []byte(prefix); len(end) > 0; end = end[:len(end)-1] {
		if last := &end[len(end)-1]; *last < 0xff {
			*last++
			return end
		}
	}
	return nil
}

// notThere is core.ErrNotFound with what was looked for, such as "token", and its name.
func notThere(what, name string) error {
	return fmt.Errorf("%s %s: %w", what, core.QuoteShort(name), core.ErrNotFound)
}

// lookUp reads the one row of the thing with a name. what, such as "token", is for errors. Error:
// core.ErrNotFound.
func lookUp[T any](ctx context.Context, a *asked, what, name string, scan func(row interface{ Scan(...any) error }) (T, error), query string, args ...any) (T, error) {
	is, err := scan(a.of.db.QueryRowContext(ctx, a.of.params(query), args...))
	if errors.Is(err, sql.ErrNoRows) {
		return is, notThere(what, name)
	}
	return is, about(err, "%s %s", what, core.QuoteShort(name))
}

// about wraps an error with what was being done. A nil error stays nil, so that callers can wrap without
// asking.
func about(err error, format string, values ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(values, err)...)
}

package dulytx

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly"
)

// Table is the name of the table.
const Table = "duly_outbox"

// ErrNoTable says that the database has no outbox, or not where it was looked for: `duly outbox create-table` makes it.
var ErrNoTable = errors.New("there is no table " + Table + " here: make it with `duly outbox create-table`, or name its schema in dulytx.Outbox")

// Outbox is where submissions are written. The zero value is the table as the connection finds it by its search_path,
// without a codec.
type Outbox struct {
	Schema string     // of the table; empty: the search_path says
	Codec  duly.Codec // as duly.WithCodec has it for clients; nil: inputs are as they are
}

// Submit hands one task in as [duly.Plan.Submit] does, as a part of tx: it is a task once tx has committed, and never was
// if tx is rolled back. It returns when the row is written; what the plan, id, input and options lack is an error here,
// an [duly.ErrRefused], before anything is written. What only a node can know is found later: an id that is taken with
// another input, a plan that was never applied. Such a row stays in the table with its reason, and operators are told.
//
// [duly.Within] counts from when the row is written, by the clock of the database.
func Submit[In any](ctx context.Context, tx pgx.Tx, plan *duly.Plan[In], id string, input In, options ...duly.SubmitOption) error {
	return SubmitTo(ctx, Outbox{}, tx, plan, id, input, options...)
}

// SubmitTo is [Submit] with another schema, or with a codec.
func SubmitTo[In any](ctx context.Context, to Outbox, tx pgx.Tx, plan *duly.Plan[In], id string, input In, options ...duly.SubmitOption) error {
	p, err := plan.Prepare(ctx, to.Codec, id, input, options...)
	if err != nil {
		return err
	}
	return to.write(ctx, pgxTx{tx}, &p)
}

// SubmitRaw is [SubmitTo] for callers without the plan's types: input is the JSON as it shall reach the agents.
func SubmitRaw(ctx context.Context, to Outbox, tx pgx.Tx, typ, id string, input []byte, options ...duly.SubmitOption) error {
	p, err := duly.PrepareRaw(ctx, to.Codec, typ, id, input, options...)
	if err != nil {
		return err
	}
	return to.write(ctx, pgxTx{tx}, &p)
}

// SubmitSQL is [SubmitTo] for a transaction of database/sql, with pgx's driver or another that numbers parameters as
// PostgreSQL does.
func SubmitSQL[In any](ctx context.Context, to Outbox, tx *sql.Tx, plan *duly.Plan[In], id string, input In, options ...duly.SubmitOption) error {
	p, err := plan.Prepare(ctx, to.Codec, id, input, options...)
	if err != nil {
		return err
	}
	return to.write(ctx, sqlTx{tx}, &p)
}

// execer is what a transaction is needed for.
type execer interface {
	exec(ctx context.Context, query string, args ...any) error
}

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.Exec(ctx, query, args...)
	return err
}

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return err
}

// insertSQL writes one row. Its time is that of this statement, not of the transaction's beginning.
const insertSQL = `INSERT INTO %s (type, task, input, headers, written) VALUES ($1, $2, $3, $4, clock_timestamp())`

// undefinedTable is the SQLSTATE of a table that is not there.
const undefinedTable = "42P01"

// write writes one row.
func (o Outbox) write(ctx context.Context, tx execer, p *duly.Prepared) error {
	headers, err := json.Marshal(p.Headers)
	if err != nil {
		return fmt.Errorf("outbox: task %s of type %s: %w", p.Task, p.Type, err)
	}
	if err := tx.exec(ctx, fmt.Sprintf(insertSQL, o.table()), p.Type, p.Task, string(p.Input), string(headers)); err != nil {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
			err = fmt.Errorf("%w (%w)", ErrNoTable, err)
		}
		return fmt.Errorf("outbox: task %s of type %s: %w", p.Task, p.Type, err)
	}
	return nil
}

// table is the table's name in SQL.
func (o Outbox) table() string {
	if o.Schema == "" {
		return Table
	}
	return pgx.Identifier{o.Schema, Table}.Sanitize()
}

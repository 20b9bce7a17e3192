package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/internal/core"
)

// OutboxSQL makes the table of an outbox and its indexes, where they are not there yet.
//
//go:embed outbox.sql
var OutboxSQL string

// Times and sizes of an outbox.
const (
	// outboxTryMax bounds one statement.
	outboxTryMax = 5 * time.Second
	// outboxHoldMax is how long a relay that stands still keeps its rows from others.
	outboxHoldMax = 30 * time.Second
	// outboxReasonMax is the longest reason that is kept, in bytes.
	outboxReasonMax = 1024
	// outboxConns are for a relay that takes rows up to 16 times at once, once for each task stream, and one that is asked how
	// it does. Mostly there are two.
	outboxConns    = 17
	outboxConnIdle = time.Minute // until those that a relay no longer needs are closed
	// OutboxCountMax is the most that [Outbox.Standing] counts exactly; one more means that there are more.
	OutboxCountMax = 10_000
)

// Outbox is a table duly_outbox, in Duly's database or another. It is safe for concurrent use.
type Outbox struct {
	pool    *pgxpool.Pool
	sockets sockets
}

// OutboxRow is a submission that is not relayed yet, or is refused.
type OutboxRow struct {
	Number  int64         `json:"number"`
	Type    string        `json:"type"`
	Task    string        `json:"task"`
	Input   []byte        `json:"-"`
	Headers []byte        `json:"-"` // JSON, unchecked
	Age     time.Duration `json:"-"` // since it was written, by the database's clock
	Written time.Time     `json:"written"`
	Tries   int           `json:"tries"`
	Code    int           `json:"code,omitempty"` // of the last try that was put off or refused
	Reason  string        `json:"reason,omitempty"`
	Refused time.Time     `json:"refused,omitzero"` // zero: it waits
}

// OutboxVerdict is what becomes of a row.
type OutboxVerdict struct {
	Number int64
	Stored bool          // remove it
	Again  time.Duration // not Stored: put it off for so long; 0: keep it as refused
	Code   int
	Reason string
}

// OutboxStanding is how an outbox does.
type OutboxStanding struct {
	Waiting int64         // rows to relay, at most OutboxCountMax + 1
	Oldest  time.Duration // how long ago the oldest of these was written
	Refused int64         // rows that are kept, at most OutboxCountMax + 1
	First   *OutboxRow    // of the refused; nil: none
}

// OpenOutbox opens the outbox in the database of a URL postgres://…. It connects when it is used, so that a database that
// is away keeps no node from starting. Error: a URL that cannot be.
func OpenOutbox(ctx context.Context, url string) (*Outbox, error) {
	o := &Outbox{}
	cfg, err := poolConfig(url, &o.sockets)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns, cfg.MaxConnIdleTime = outboxConns, 0, outboxConnIdle
	// Nothing is prepared, and nothing is set for a session: a pooler of transactions may be between.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if o.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	return o, nil
}

// Close closes the connections, also to a server that does not answer.
func (o *Outbox) Close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.pool.Close()
	}()
	timer := time.NewTimer(closeMax)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
		o.sockets.cut()
	}
	<-done
}

// Create makes the table where it is not there yet.
func (o *Outbox) Create(ctx context.Context) error {
	for text := range strings.SplitSeq(OutboxSQL, ";\n") { // each alone, as CockroachDB wants changes of tables
		if strings.TrimSpace(text) == "" {
			continue
		}
		_, err := o.pool.Exec(ctx, text)
		if collided(err) {
			_, err = o.pool.Exec(ctx, text)
		}
		if err != nil {
			return fmt.Errorf("outbox: create table: %w", err)
		}
	}
	return nil
}

const (
	outboxDueSQL  = `SELECT EXISTS (SELECT 1 FROM duly_outbox WHERE refused IS NULL AND due <= now())`
	outboxHoldSQL = `SET LOCAL idle_in_transaction_session_timeout = %d`
	// outboxTakeSQL has the rows locked for the transaction; those that another relay has are passed over.
	outboxTakeSQL = `SELECT number, type, task, input, headers, clock_timestamp(), tries, written
		FROM duly_outbox WHERE refused IS NULL AND due <= now() ORDER BY due, number LIMIT $1 FOR UPDATE SKIP LOCKED`
	outboxStoredSQL = `DELETE FROM duly_outbox WHERE number = ANY($1::INT8[])`
	outboxKeptSQL   = `UPDATE duly_outbox SET tries = duly_outbox.tries + 1, code = u.code, reason = u.reason,
			due = CASE WHEN u.again > 0 THEN clock_timestamp() + u.again * INTERVAL '1 microsecond' ELSE duly_outbox.due END,
			refused = CASE WHEN u.again > 0 THEN NULL ELSE clock_timestamp() END
		FROM unnest($1::INT8[], $2::INT8[], $3::TEXT[], $4::INT8[]) AS u (number, code, reason, again)
		WHERE duly_outbox.number = u.number`
	outboxWaitingSQL = `SELECT count(*), COALESCE(min(written), clock_timestamp()), clock_timestamp()
		FROM (SELECT written FROM duly_outbox WHERE refused IS NULL ORDER BY number LIMIT $1) w`
	outboxRefusedSQL = `SELECT count(*) FROM (SELECT 1 FROM duly_outbox WHERE refused IS NOT NULL LIMIT $1) r`
	outboxListSQL    = `SELECT number, type, task, written, tries, code, reason, refused FROM duly_outbox
		WHERE number > $1 AND ($2 OR refused IS NOT NULL) ORDER BY number LIMIT $3`
	outboxAgainSQL   = `UPDATE duly_outbox SET refused = NULL, due = now() WHERE refused IS NOT NULL AND ($1 OR number = ANY($2::INT8[]))`
	outboxDiscardSQL = `DELETE FROM duly_outbox WHERE refused IS NOT NULL AND number = ANY($1::INT8[])`
)

// Take locks up to most rows that are due and that no other relay has, calls hand with them, and does what hand says of
// each in the same transaction. A row of which hand says nothing stays as it is; so do all when Take fails, or when this
// process or its connection ends: another relay has them then. It returns how many rows it took. hand is not called
// when there are none. ctx ends what comes before hand; what was handed in is written down also after its end, for a
// bounded time.
func (o *Outbox) Take(ctx context.Context, most int, hand func(context.Context, []OutboxRow) []OutboxVerdict) (took int, err error) {
	if due, err := o.due(ctx); err != nil || !due {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, outboxTryMax)
	defer cancel()
	tx, err := o.pool.BeginTx(bounded, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, fmt.Errorf("outbox: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), outboxTryMax)
		defer cancel()
		// After a commit there is nothing to do; an error is told by what came before, and ends the connection.
		_ = tx.Rollback(end)
	}()
	if _, err := tx.Exec(bounded, fmt.Sprintf(outboxHoldSQL, outboxHoldMax.Milliseconds())); err != nil {
		return 0, fmt.Errorf("outbox: %w", err)
	}
	rows, err := locked(bounded, tx, most)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	verdicts := hand(ctx, rows)
	end, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), outboxTryMax)
	defer cancelEnd()
	if err := settle(end, tx, verdicts); err != nil {
		return 0, err
	}
	if err := tx.Commit(end); err != nil {
		return 0, fmt.Errorf("outbox: commit: %w", err)
	}
	return len(rows), nil
}

// ErrNoOutbox says that there is no table of that name where the connection looks for it.
var ErrNoOutbox = errors.New("there is no table duly_outbox where this user looks for it: make it with `duly outbox create-table`, or name its schema in the URL (search_path)")

// outboxError names what was done, and what to do where the table is not there.
func outboxError(what string, err error) error {
	if sqlState(err) == "42P01" {
		err = fmt.Errorf("%w (%w)", ErrNoOutbox, err)
	}
	return fmt.Errorf("outbox: %s: %w", what, err)
}

// due reports whether there is something to take: without a transaction, because there mostly is not.
func (o *Outbox) due(ctx context.Context) (due bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, outboxTryMax)
	defer cancel()
	if err := o.pool.QueryRow(ctx, outboxDueSQL).Scan(&due); err != nil {
		return false, outboxError("read", err)
	}
	return due, nil
}

// locked reads and locks rows.
func locked(ctx context.Context, tx pgx.Tx, most int) ([]OutboxRow, error) {
	found, err := tx.Query(ctx, outboxTakeSQL, int64(most))
	if err != nil {
		return nil, fmt.Errorf("outbox: read: %w", err)
	}
	rows, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r OutboxRow, err error) {
		var input, headers string
		var now time.Time
		if err := row.Scan(&r.Number, &r.Type, &r.Task, &input, &headers, &now, &r.Tries, &r.Written); err != nil {
			return r, err
		}
		r.Input, r.Headers, r.Age = []byte(input), []byte(headers), max(0, now.Sub(r.Written))
		return r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: read: %w", err)
	}
	return rows, nil
}

// settle does what was said of each row.
func settle(ctx context.Context, tx pgx.Tx, verdicts []OutboxVerdict) error {
	var stored, kept, codes, again []int64
	var reasons []string
	for i := range verdicts {
		v := &verdicts[i]
		if v.Stored {
			stored = append(stored, v.Number)
			continue
		}
		kept, codes, again = append(kept, v.Number), append(codes, int64(v.Code)), append(again, v.Again.Microseconds())
		reasons = append(reasons, core.ShortText(v.Reason, outboxReasonMax))
	}
	if len(stored) > 0 {
		if _, err := tx.Exec(ctx, outboxStoredSQL, stored); err != nil {
			return fmt.Errorf("outbox: remove: %w", err)
		}
	}
	if len(kept) > 0 {
		if _, err := tx.Exec(ctx, outboxKeptSQL, kept, codes, reasons, again); err != nil {
			return fmt.Errorf("outbox: keep: %w", err)
		}
	}
	return nil
}

// Standing counts what waits and what is refused.
func (o *Outbox) Standing(ctx context.Context) (s OutboxStanding, err error) {
	ctx, cancel := context.WithTimeout(ctx, outboxTryMax)
	defer cancel()
	var oldest, now time.Time
	err = o.pool.QueryRow(ctx, outboxWaitingSQL, OutboxCountMax+1).Scan(&s.Waiting, &oldest, &now)
	if err == nil {
		err = o.pool.QueryRow(ctx, outboxRefusedSQL, OutboxCountMax+1).Scan(&s.Refused)
	}
	if err != nil {
		return s, outboxError("count", err)
	}
	s.Oldest = max(0, now.Sub(oldest))
	if s.Refused > 0 {
		rows, err := o.List(ctx, 0, false, 1)
		if err != nil {
			return s, err
		}
		if len(rows) > 0 {
			s.First = &rows[0]
		}
	}
	return s, nil
}

// List reads rows after a number, at most so many: those that are refused, with waiting also those that are not.
func (o *Outbox) List(ctx context.Context, after int64, waiting bool, most int) ([]OutboxRow, error) {
	found, err := o.pool.Query(ctx, outboxListSQL, after, waiting, int64(most))
	if err != nil {
		return nil, outboxError("list", err)
	}
	rows, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r OutboxRow, err error) {
		var code *int
		var reason *string
		var refused *time.Time
		if err := row.Scan(&r.Number, &r.Type, &r.Task, &r.Written, &r.Tries, &code, &reason, &refused); err != nil {
			return r, err
		}
		if code != nil {
			r.Code = *code
		}
		if reason != nil {
			r.Reason = *reason
		}
		if refused != nil {
			r.Refused = *refused
		}
		return r, nil
	})
	if err != nil {
		return nil, outboxError("list", err)
	}
	return rows, nil
}

// errNoRows refuses to change nothing.
var errNoRows = errors.New("outbox: no row is named")

// Again has refused rows relayed again: those of the numbers, or all. It returns how many there were.
func (o *Outbox) Again(ctx context.Context, all bool, numbers []int64) (int64, error) {
	if !all && len(numbers) == 0 {
		return 0, errNoRows
	}
	tag, err := o.pool.Exec(ctx, outboxAgainSQL, all, numbers)
	if err != nil {
		return 0, outboxError("try again", err)
	}
	return tag.RowsAffected(), nil
}

// Discard removes refused rows for good: their tasks never are. It returns how many there were.
func (o *Outbox) Discard(ctx context.Context, numbers []int64) (int64, error) {
	if len(numbers) == 0 {
		return 0, errNoRows
	}
	tag, err := o.pool.Exec(ctx, outboxDiscardSQL, numbers)
	if err != nil {
		return 0, outboxError("discard", err)
	}
	return tag.RowsAffected(), nil
}

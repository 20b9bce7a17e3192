package schema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	crdbpgx "github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/puddle/v2"

	"duly.dev/duly/internal/core"
)

// stamp turns microseconds into a timestamp; 0 becomes NULL.
const (
	at0 = `'1970-01-01 00:00:00+00'::TIMESTAMPTZ + NULLIF(u.`
	at1 = `, 0) * INTERVAL '1 microsecond'`
)

// commitSQL: the fence, the births and the journal. $1 is the commit id.
const commitSQL = `
WITH own AS (
    UPDATE partitions AS p SET cursor = u.cursor, control_cursor = u.control_cursor, next_number = u.next_number, next_end = u.next_end, told = u.told
    FROM unnest($2::INT8[], $3::INT8[], $4::INT8[], $5::INT8[], $6::INT8[], $7::INT8[], $8::INT8[])
         AS u(partition, epoch, cursor, control_cursor, next_number, next_end, told)
    WHERE p.partition = u.partition AND p.epoch = u.epoch
    RETURNING p.partition
), born AS (
    INSERT INTO tasks (partition, number, id, type, plan_version, input, input_hash, state, seq, round, locked_by, waits_for, complete_by, deadline,
        failure_count, reply_to, trace, origin, created_at, updated_at, ended_at, end_number, commit_id)
    SELECT u.partition, u.number, u.id, u.type, u.plan_version, u.input, u.input_hash, u.state, u.seq, u.round, NULLIF(u.locked_by, ''), NULLIF(u.waits_for, ''),
        ` + at0 + `complete_by` + at1 + `, ` + at0 + `deadline` + at1 + `, u.failure_count, NULLIF(u.reply_to, ''), NULLIF(u.trace, ''), u.origin,
        ` + at0 + `created_at` + at1 + `, ` + at0 + `updated_at` + at1 + `, ` + at0 + `ended_at` + at1 + `, NULLIF(u.end_number, 0), $1
    FROM unnest($9::INT8[], $10::INT8[], $11::TEXT[], $12::TEXT[], $13::INT8[], $14::BYTEA[], $15::BYTEA[], $16::TEXT[], $17::INT8[], $18::INT8[], $19::TEXT[], $20::TEXT[],
        $21::INT8[], $22::INT8[], $23::INT8[], $24::TEXT[], $25::TEXT[], $26::INT8[], $27::INT8[], $28::INT8[], $29::INT8[], $30::INT8[])
        AS u(partition, number, id, type, plan_version, input, input_hash, state, seq, round, locked_by, waits_for, complete_by, deadline,
             failure_count, reply_to, trace, origin, created_at, updated_at, ended_at, end_number)
    JOIN own ON own.partition = u.partition
    ON CONFLICT (partition, id) DO NOTHING
    RETURNING partition, number
), written AS (
    INSERT INTO journal (partition, number, seq, at, actor, commit_id, format, kind, state, round, step, step_status, attempt, code, error, fingerprint, reason,
        result, quiet, next, next_attempt, undo, due, deadline)
    SELECT u.partition, u.number, u.seq, ` + at0 + `at` + at1 + `, u.actor, $1, 1, u.kind, u.state, u.round, NULLIF(u.step, -1), NULLIF(u.step_status, ''), u.attempt,
        NULLIF(u.code, 0), u.error, NULLIF(u.fingerprint, ''), u.reason, u.result, ` + at0 + `quiet` + at1 + `, NULLIF(u.next, -1), NULLIF(u.next_attempt, 0), u.undo,
        ` + at0 + `due` + at1 + `, ` + at0 + `deadline` + at1 + `
    FROM unnest($31::INT8[], $32::INT8[], $33::INT8[], $34::INT8[], $35::TEXT[], $36::TEXT[], $37::TEXT[], $38::INT8[], $39::INT8[], $40::TEXT[], $41::INT8[], $42::INT8[],
        $43::BYTEA[], $44::TEXT[], $45::BYTEA[], $46::BYTEA[], $47::INT8[], $48::INT8[], $49::INT8[], $50::BOOL[], $51::INT8[], $52::INT8[], $53::BOOL[])
        AS u(partition, number, seq, at, actor, kind, state, round, step, step_status, attempt, code, error, fingerprint, reason, result, quiet, next, next_attempt, undo,
             due, deadline, birth)
    JOIN own ON own.partition = u.partition
    WHERE NOT u.birth OR (u.partition, u.number) IN (SELECT partition, number FROM born)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT ARRAY(SELECT partition FROM own), (SELECT count(*) FROM born), (SELECT count(*) FROM written)`

// rowsSQL updates the rows of tasks whose state changed.
const rowsSQL = `
UPDATE tasks AS t SET plan_version = u.plan_version, state = u.state, seq = u.seq, round = u.round, locked_by = NULLIF(u.locked_by, ''), waits_for = NULLIF(u.waits_for, ''),
    complete_by = ` + at0 + `complete_by` + at1 + `, deadline = ` + at0 + `deadline` + at1 + `, failure_count = u.failure_count,
    updated_at = ` + at0 + `updated_at` + at1 + `, ended_at = ` + at0 + `ended_at` + at1 + `, end_number = NULLIF(u.end_number, 0), commit_id = $1
FROM unnest($2::INT8[], $3::INT8[], $4::INT8[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::TEXT[], $9::TEXT[], $10::INT8[], $11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[])
    AS u(partition, number, plan_version, state, seq, round, locked_by, waits_for, complete_by, deadline, failure_count, updated_at, ended_at, end_number)
WHERE t.partition = u.partition AND t.number = u.number AND t.seq < u.seq AND u.partition = ANY($16::INT8[])`

// bornSQL tells what stands where births were left out.
const bornSQL = `SELECT u.place, t.partition, t.number, t.id, t.type, t.input_hash, t.state, t.commit_id
FROM unnest($1::INT8[], $2::TEXT[], $3::INT8[]) AS u(partition, id, place) JOIN tasks AS t ON t.partition = u.partition AND t.id = u.id ORDER BY u.place`

// oursSQL counts the journal rows that stand under our commit, in partitions that
// are still ours: those of an earlier sending may be another's by now.
const oursSQL = `SELECT count(*) FROM unnest($2::INT8[], $3::INT8[], $4::INT8[]) AS u(partition, number, seq)
JOIN journal AS j ON j.partition = u.partition AND j.number = u.number AND j.seq = u.seq
WHERE j.commit_id = $1 AND u.partition = ANY($5::INT8[])`

// Commit implements Store.
func (p *postgres) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	if err := complete(b); err != nil || len(b.Partitions) == 0 {
		return core.CommitResult{}, err
	}
	var c *columns
	select {
	case c = <-p.cols:
	default:
		c = &columns{}
	}
	c.fill(b)
	defer func() {
		c.reset()
		select {
		case p.cols <- c:
		default:
		}
	}()
	for try := 0; ; try++ {
		res, err := p.commitOnce(ctx, b, c)
		err = p.judge(err)
		if err == nil {
			return res, p.reasons(ctx, res.Duplicates)
		}
		if errors.Is(err, core.ErrRowRefused) || errors.Is(err, core.ErrForeignRow) || !again(err) {
			return core.CommitResult{}, err
		}
		// Rolled back, or nobody knows: the same batch is sent again, and
		// recognises its own rows by the commit id.
		if err := errors.Join(pause(ctx, try), ctx.Err()); err != nil {
			return core.CommitResult{}, fmt.Errorf("commit %d: outcome unknown: %w", b.ID, err)
		}
	}
}

// judge names what the database refuses.
func (p *postgres) judge(err error) error {
	state := sqlState(err)
	if len(state) != 5 {
		return err
	}
	if state == "23505" { // ids give way to each other: these are numbers that we give
		return fmt.Errorf("%w: %w", core.ErrForeignRow, err)
	}
	switch state[:2] {
	case "22", "23", "54":
		return fmt.Errorf("%w: %w", core.ErrRowRefused, err)
	}
	return err
}

// again: worth sending the same batch once more. A server's error is final
// unless it says that it rolled back, is going away, or is short of something.
func again(err error) bool {
	state := sqlState(err)
	if state == "" { // no word from the server: the connection broke, unless it was never asked
		return !errors.Is(err, puddle.ErrClosedPool)
	}
	switch state[:2] {
	case "40", "08", "25", "53", "57", "58": // 25: ended while idle, or not the primary any more
		return true
	}
	return false
}

// pause waits before try+1: jittered, doubling, half a second at most.
func pause(ctx context.Context, try int) error {
	most := min(5*time.Millisecond<<min(try, 10), 500*time.Millisecond)
	t := time.NewTimer(time.Duration(rand.Int64N(int64(most))) + time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *postgres) commitOnce(ctx context.Context, b *core.Batch, c *columns) (core.CommitResult, error) {
	var res core.CommitResult
	write := func(tx pgx.Tx) error {
		var err error
		res, err = write(ctx, tx, b, c)
		return err
	}
	var err error
	if p.dialect == "cockroach" {
		err = crdbpgx.ExecuteTx(ctx, p.pool, p.tx, write)
	} else {
		err = pgx.BeginTxFunc(ctx, p.pool, p.tx, write)
	}
	return res, err
}

func write(ctx context.Context, tx pgx.Tx, b *core.Batch, c *columns) (core.CommitResult, error) {
	var res core.CommitResult
	var own []int64
	var born, written int
	if err := tx.QueryRow(ctx, commitSQL, c.commitArgs(b.ID)...).Scan(&own, &born, &written); err != nil {
		return res, err
	}
	owned := make(map[int]bool, len(own))
	for _, p := range own {
		owned[int(p)] = true
	}
	for i := range b.Partitions {
		if p := b.Partitions[i].Partition; !owned[p] {
			res.Fenced = append(res.Fenced, p)
		}
	}
	births, rows := expected(b, owned)
	if born != births {
		left, err := leftOut(ctx, tx, b, owned, &res)
		if err != nil {
			return res, err
		}
		rows -= left
	}
	if written != rows {
		var ours int
		if err := tx.QueryRow(ctx, oursSQL, b.ID, some(c.j.partition), some(c.j.number), some(c.j.seq), own).Scan(&ours); err != nil {
			return res, err
		}
		if ours != rows {
			return res, fmt.Errorf("commit %d: %d of %d journal rows are ours: %w", b.ID, ours, rows, core.ErrForeignRow)
		}
	}
	if len(c.r.partition) > 0 && len(own) > 0 {
		if _, err := tx.Exec(ctx, rowsSQL, c.rowArgs(b.ID, own)...); err != nil {
			return res, err
		}
	}
	return res, nil
}

// expected is how many births and journal rows the owned partitions have.
func expected(b *core.Batch, owned map[int]bool) (births, rows int) {
	for i := range b.Writes {
		w := &b.Writes[i]
		if !owned[w.Task.Partition] {
			continue
		}
		rows += len(w.Records)
		if w.Birth {
			births++
		}
	}
	return births, rows
}

// leftOut finds the births that did not happen now: those of an earlier sending
// of this very batch are ours, all others are duplicates. It returns how many
// journal rows the duplicates would have had.
func leftOut(ctx context.Context, tx pgx.Tx, b *core.Batch, owned map[int]bool, res *core.CommitResult) (int, error) {
	var partitions []int64
	var ids []string
	var places []int64 // of the births in the batch
	for i := range b.Writes {
		if w := &b.Writes[i]; w.Birth && owned[w.Task.Partition] {
			partitions = append(partitions, int64(w.Task.Partition))
			ids = append(ids, w.Task.ID)
			places = append(places, int64(i))
		}
	}
	rows, err := tx.Query(ctx, bornSQL, partitions, ids, places)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	left := 0
	for rows.Next() {
		var e core.Existing
		var state string
		var place int
		var commit int64
		if err := rows.Scan(&place, &e.Partition, &e.Number, &e.ID, &e.Type, &e.InputHash, &state, &commit); err != nil {
			return 0, err
		}
		e.State = core.State(state)
		w := &b.Writes[place]
		if commit == b.ID && e.Number == w.Task.Number {
			continue
		}
		res.Duplicates = append(res.Duplicates, core.Duplicate{Partition: e.Partition, Number: w.Task.Number, Existing: e})
		left += len(w.Records)
	}
	return left, rows.Err()
}

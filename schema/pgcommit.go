package schema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	crdbpgx "github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"duly.dev/duly/internal/core"
)

// Commit implements Store.
func (p *postgres) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	if err := complete(b); err != nil || len(b.Partitions) == 0 {
		return core.CommitResult{}, err
	}
	var c *columns
	select {
	case c = <-p.cols:
	default:
		c = newColumns()
	}
	c.fill(b)
	defer func() {
		c.reset()
		select {
		case p.cols <- c:
		default:
		}
	}()
	// After an unknown outcome our own rows may stand there already.
	for try := 0; ; try++ {
		res, err := p.commitOnce(ctx, b, c, try > 0)
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

// commitOnce tries the plain way first, unless the batch was sent before or what
// a plain commit cannot do has come up lately.
func (p *postgres) commitOnce(ctx context.Context, b *core.Batch, c *columns, before bool) (core.CommitResult, error) {
	if !before && p.wary.Add(-1) < 0 {
		err := p.commitPlainly(ctx, c)
		if !doubtful(err) {
			return core.CommitResult{}, err
		}
	}
	var res core.CommitResult
	err := p.once(ctx, func(tx pgx.Tx) error {
		var err error
		res, err = commitCarefully(ctx, tx, b, c)
		return err
	})
	if err == nil && (len(res.Duplicates) > 0 || len(res.Fenced) > 0) {
		p.wary.Store(waryCommits)
	}
	return res, err
}

// waryCommits is how many commits go the careful way after one that had to: taken
// ids come in bunches, and a plain commit that fails is work for nothing.
const waryCommits = 16

// doubtful: a plain commit was rolled back because of what it found.
func doubtful(err error) bool {
	state := sqlState(err)
	return state == "22012" || state == "23505"
}

// commitPlainly sends the statements and the end of the transaction at once. On
// PostgreSQL the statements up to a sync are a transaction; on CockroachDB they
// run in one that can be tried again.
func (p *postgres) commitPlainly(ctx context.Context, c *columns) error {
	if p.dialect == "cockroach" {
		return crdbpgx.ExecuteTx(ctx, p.pool, p.tx, func(tx pgx.Tx) error { return sendPlain(ctx, tx.Conn(), c) })
	}
	return p.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return sendPlain(ctx, conn.Conn(), c) })
}

func sendPlain(ctx context.Context, conn *pgx.Conn, c *columns) error {
	plain, err := conn.Prepare(ctx, "duly_plain", plainSQL)
	if err != nil {
		return fmt.Errorf("prepare the commit: %w", err)
	}
	rows, err := conn.Prepare(ctx, "duly_rows", rowsSQL)
	if err != nil {
		return fmt.Errorf("prepare the update of rows: %w", err)
	}
	pipe := conn.PgConn().StartPipeline(ctx)
	conn.PgConn().Frontend().Send(room(c.size()))
	pipe.SendQueryStatement(plain, c.plain(), binaryFormat, nil)
	if c.rows.rows > 0 {
		pipe.SendQueryStatement(rows, c.update(c.partition.arrays[0].param()), binaryFormat, nil)
	}
	err = pipe.Sync()
	return errors.Join(err, pipe.Close()) // the first error of a statement, or of the commit
}

var binaryFormat = []int16{pgx.BinaryFormatCode}

// once runs one transaction; on CockroachDB it is tried again there.
func (p *postgres) once(ctx context.Context, do func(pgx.Tx) error) error {
	if p.dialect == "cockroach" {
		return crdbpgx.ExecuteTx(ctx, p.pool, p.tx, do)
	}
	return pgx.BeginTxFunc(ctx, p.pool, p.tx, do)
}

// commitCarefully leaves out what is not ours or not new, and says what.
func commitCarefully(ctx context.Context, tx pgx.Tx, b *core.Batch, c *columns) (core.CommitResult, error) {
	var res core.CommitResult
	own, born, written, err := writeCarefully(ctx, tx, c)
	if err != nil {
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
		ours, err := standing(ctx, tx, b, own)
		if err != nil {
			return res, err
		}
		if ours != rows {
			return res, fmt.Errorf("commit %d: %d of %d journal rows are ours: %w", b.ID, ours, rows, core.ErrForeignRow)
		}
	}
	if c.rows.rows == 0 || len(own) == 0 {
		return res, nil
	}
	return res, updateRows(ctx, tx, c, own)
}

// writeCarefully runs the fence, the births and the journal.
func writeCarefully(ctx context.Context, tx pgx.Tx, c *columns) (own []int64, born, written int, err error) {
	careful, err := tx.Prepare(ctx, "duly_careful", carefulSQL)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("prepare the careful commit: %w", err)
	}
	conn := tx.Conn()
	result := conn.PgConn().ExecStatement(ctx, careful, c.careful(), binaryFormat, nil)
	rows := pgx.RowsFromResultReader(conn.TypeMap(), result)
	for rows.Next() {
		if err := rows.Scan(&own, &born, &written); err != nil {
			rows.Close()
			return nil, 0, 0, err
		}
	}
	return own, born, written, rows.Err()
}

func updateRows(ctx context.Context, tx pgx.Tx, c *columns, own []int64) error {
	rows, err := tx.Prepare(ctx, "duly_rows", rowsSQL)
	if err != nil {
		return fmt.Errorf("prepare the update of rows: %w", err)
	}
	only := array{oid: oids["INT8"]}
	only.reset()
	for _, p := range own {
		only.int(p)
	}
	_, err = tx.Conn().PgConn().ExecStatement(ctx, rows, c.update(only.param()), binaryFormat, nil).Close()
	return err
}

// standing counts the batch's journal rows that stand under its id.
func standing(ctx context.Context, tx pgx.Tx, b *core.Batch, own []int64) (ours int, err error) {
	var partitions, numbers, seqs []int64
	for i := range b.Writes {
		w := &b.Writes[i]
		for k := range w.Records {
			partitions = append(partitions, int64(w.Task.Partition))
			numbers = append(numbers, w.Task.Number)
			seqs = append(seqs, w.Records[k].Seq)
		}
	}
	err = tx.QueryRow(ctx, oursSQL, b.ID, partitions, numbers, seqs, own).Scan(&ours)
	return ours, err
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

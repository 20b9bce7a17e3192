package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	crdbpgx "github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// A commit goes one of two ways. The fast path sends all statements and the end of the transaction at once.
// It fails as a whole, by a division by zero or a taken key, when another owner has a partition, an id is
// taken or a journal row exists already. Then the fallback writes what is ours and new, and reports what it
// left out.

// statements are the SQL of a commit, and of a probe, which finds the row that a refused commit was refused for, each with the
// columns whose values are its parameters.
type statements struct {
	of         *schema.Tables
	partitions []schema.Column[schema.PartitionRow]
	// tasks are the columns that a commit writes.
	tasks []schema.Column[schema.TaskRow]
	// records are the columns of journal with the parameter OfBirth, for the fallback.
	records []schema.Column[schema.JournalRow]

	fence, births, journal, update statement
	// labels and links are prepared when a commit first has some.
	labels, links                 statement
	fallback, newLabels, newLinks statement
	probeTask, probeRecord        string
}

// statement is prepared under a name on each connection.
type statement struct{ name, sql string }

// newStatements makes the statements of tables.
func newStatements(of *schema.Tables) *statements {
	moved := schema.Of(of.Partitions, schema.State)
	changed := schema.Of(of.Tasks, schema.State)
	s := &statements{of: of, tasks: schema.Of(of.Tasks, schema.Key|schema.Birth|schema.State)}
	s.partitions = slices.Concat(append(schema.Of(of.Partitions, schema.Key), schema.FromCommit), moved)
	s.records = append(slices.Clone(of.Journal), schema.OfBirth)
	tasks, journal, labels, links := schema.Names(s.tasks), schema.Names(of.Journal), schema.Names(of.Labels), schema.Names(of.Chain)

	// move is the fence: it moves the partitions whose row is as their owner left it, and no others.
	move := `UPDATE partitions AS p SET ` + assign(moved, "u") + ` FROM ` + unnest(1, s.partitions) +
		` WHERE p.partition = u.partition AND p.epoch = u.epoch AND p.last_commit IN (u.after, u.last_commit) RETURNING p.partition`
	s.fence = statement{"duly_fence", `WITH own AS (` + move + `) SELECT 1 / (CASE WHEN (SELECT count(*) FROM own) = cardinality($1::INT8[]) THEN 1 ELSE 0 END)`}
	s.births = statement{"duly_births", `COPY tasks (` + tasks + `) FROM STDIN (FORMAT binary)`}
	s.journal = statement{"duly_journal", `COPY journal (` + journal + `) FROM STDIN (FORMAT binary)`}
	s.labels = statement{"duly_labels", `COPY labels (` + labels + `) FROM STDIN (FORMAT binary)`}
	s.links = statement{"duly_links", `COPY chain (` + links + `) FROM STDIN (FORMAT binary)`}

	// update writes the rows of tasks that exist and have changed. It is an INSERT whose every key conflicts,
	// so that the index of the key finds the rows whatever the planner believes: a join would read all of a
	// table that has grown since it was analyzed.
	s.update = statement{"duly_update", `INSERT INTO tasks AS t (` + tasks + `) SELECT ` + values(s.tasks) + ` FROM ` + unnest(1, s.tasks) +
		` ON CONFLICT (partition, number) DO UPDATE SET ` + assign(changed, "excluded") + ` WHERE t.seq < excluded.seq`}
	// newLabels writes the labels of the births that were written: one that was left out has no row of its
	// number.
	s.newLabels = statement{"duly_labels_new", `INSERT INTO labels (` + labels + `) SELECT ` + values(of.Labels) + ` FROM ` + unnest(1, of.Labels) +
		` JOIN tasks AS t ON t.partition = u.partition AND t.number = u.number ON CONFLICT DO NOTHING`}
	// newLinks writes links, also over those of an earlier sending of the same commit. It returns no row for
	// a link of another commit.
	s.newLinks = statement{"duly_links_new", `INSERT INTO chain AS c (` + links + `) SELECT ` + values(of.Chain) + ` FROM ` + unnest(1, of.Chain) +
		` ON CONFLICT (partition, height) DO UPDATE SET linked_at = excluded.linked_at, content = excluded.content, hash = excluded.hash` +
		` WHERE c.epoch = excluded.epoch AND c.commit_id = excluded.commit_id RETURNING 1`}

	// fallback moves the partitions that are ours, and writes births and journal rows that are ours and new.
	// It returns what it did.
	firstBirth := 1 + len(s.partitions) // numbers of parameters
	firstRecord := firstBirth + len(s.tasks)
	s.fallback = statement{"duly_fallback", `WITH own AS (` + move + `), born AS (
    INSERT INTO tasks (` + tasks + `) SELECT ` + values(s.tasks) + ` FROM ` + unnest(firstBirth, s.tasks) + ` JOIN own ON own.partition = u.partition
    ON CONFLICT (partition, id) DO NOTHING RETURNING partition, number
), written AS (
    INSERT INTO journal (` + journal + `) SELECT ` + values(of.Journal) + ` FROM ` + unnest(firstRecord, s.records) + ` JOIN own ON own.partition = u.partition
    WHERE NOT u.birth OR (u.partition, u.number) IN (SELECT partition, number FROM born)
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT ARRAY(SELECT partition FROM own), (SELECT count(*) FROM born), (SELECT count(*) FROM written)`}

	s.probeTask = `INSERT INTO tasks (` + tasks + `) VALUES (` + schema.Join(s.tasks, "$%[2]d") + `)`
	s.probeRecord = `INSERT INTO journal (` + journal + `) VALUES (` + schema.Join(of.Journal, "$%[2]d") + `)`
	return s
}

const (
	// bornSQL reads the tasks that have the ids of the births that were left out.
	bornSQL = `SELECT u.place, t.partition, t.number, t.id, t.type, t.input_hash, t.state, t.commit_id
FROM unnest($1::INT8[], $2::TEXT[], $3::INT8[]) AS u(partition, id, place) JOIN tasks AS t ON t.partition = u.partition AND t.id = u.id ORDER BY u.place`

	// oursSQL counts the rows of a commit that are in the journal, in partitions that are still ours: the
	// rest may be another owner's by now.
	oursSQL = `SELECT count(*) FROM unnest($2::INT8[], $3::INT8[], $4::INT8[]) AS u(partition, number, seq)
JOIN journal AS j ON j.partition = u.partition AND j.number = u.number AND j.seq = u.seq
WHERE j.commit_id = $1 AND u.partition = ANY($5::INT8[])`
)

// Commit implements [schema.Store]. A batch that is sent again recognises its own rows by the commit id.
func (p *Store) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	e := p.encoded.Get().(*encoded)
	defer p.encoded.Put(e)
	links, err := p.Links(b)
	if err != nil {
		return core.CommitResult{}, err
	}
	var past sendings
	return p.CommitBy(ctx, b, func(ctx context.Context) (res core.CommitResult, again bool, err error) {
		res, written, err := p.sendOnce(ctx, b, links, e, past.tries > 0)
		past.tries++
		switch {
		case err == nil:
			p.Linked(written, res.Fenced)
			return res, false, nil
		case ctx.Err() != nil:
			return res, false, fmt.Errorf("commit %d: outcome unknown: %w", b.ID, ctx.Err())
		}
		// again is false for a refusal, on which the owner acts, and when the store is closed.
		again, judged := p.judge(ctx, b, err, &past)
		if again && serverIsLeaving(err) {
			p.pool.Reset()
		}
		past.unknown = past.unknown || verdictOf(err).unclear()
		return core.CommitResult{}, again, judged
	})
}

// sendOnce sends a batch by the fast path, and by the fallback where that fails. A batch that was sent before
// takes the fallback at once; so does every batch on CockroachDB, whose transactions must be repeatable.
// written are the links that went with it.
func (p *Store) sendOnce(ctx context.Context, b *core.Batch, links schema.Links, e *encoded, before bool) (res core.CommitResult, written schema.Links, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.tryMax)
	defer cancel()
	if !before && p.dialect != "cockroach" {
		err := p.commitFast(ctx, b, links, e)
		if state := sqlState(err); state != "22012" && state != "23505" { // the fence, and a taken key
			return core.CommitResult{}, links, err
		}
	}
	err = p.once(ctx, func(tx pgx.Tx) error {
		res, written, err = commitFallback(ctx, tx, b, links, e)
		return err
	})
	return res, written, err
}

// fast are the statements that each connection prepares before it first commits.
func (s *statements) fast() []statement { return []statement{s.fence, s.births, s.journal, s.update} }

// commitFast sends all statements up to one sync, which makes them one transaction of PostgreSQL.
func (p *Store) commitFast(ctx context.Context, b *core.Batch, links schema.Links, e *encoded) error {
	e.fill(b, func(int) bool { return true })
	e.fillLinks(links, func(int) bool { return true })
	return p.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		prepared := e.sql.fast()
		if e.labels.n > 0 {
			prepared = append(prepared, e.sql.labels)
		}
		if e.links.n > 0 {
			prepared = append(prepared, e.sql.links)
		}
		for _, s := range prepared {
			if _, err := c.Conn().Prepare(ctx, s.name, s.sql); err != nil {
				return fmt.Errorf("prepare %s: %w", s.name, err)
			}
		}
		return talk(ctx, c.Conn(), e.send)
	})
}

// send writes the messages of the fast path to the connection.
func (e *encoded) send(to io.Writer) error {
	m := messages{buf: e.wire[:0], to: to}
	m.execute(e.sql.fence.name, e.partitions.params())
	m.copy(e.sql.births.name, e.births.buf)
	m.copy(e.sql.journal.name, e.journal.buf)
	m.copy(e.sql.labels.name, e.labels.buf)
	m.copy(e.sql.links.name, e.links.buf)
	if e.updates.n > 0 {
		m.execute(e.sql.update.name, e.updates.params())
	}
	m.add(&pgproto3.Sync{})
	m.send(0)
	e.wire = m.buf
	return m.err
}

// talk sends messages that end with a sync and reads all answers up to that. It returns the server's first
// error. After any other error it closes the connection, because nobody knows what is still to be read from
// it.
func talk(ctx context.Context, conn *pgx.Conn, send func(io.Writer) error) error {
	pg := conn.PgConn()
	stop := context.AfterFunc(ctx, func() { _ = pg.Conn().SetDeadline(time.Unix(1, 0)) })
	said, err := exchange(pg, send)
	if stop() && err == nil {
		return said
	}
	return errors.Join(said, err, ctx.Err(), conn.Close(context.WithoutCancel(ctx)))
}

// exchange sends and reads. said is the server's first error, err one of the connection.
func exchange(pg *pgconn.PgConn, send func(io.Writer) error) (said, err error) {
	if err := send(pg.Conn()); err != nil {
		return nil, err
	}
	for {
		msg, err := pg.ReceiveMessage(context.Background()) // the deadline is on the connection
		if err != nil {
			return said, err
		}
		switch msg := msg.(type) {
		case *pgproto3.ErrorResponse:
			if said == nil {
				said = pgconn.ErrorResponseToPgError(msg)
			}
		case *pgproto3.ReadyForQuery:
			return said, nil
		}
	}
}

// once runs one transaction. CockroachDB's own helper may run it several times.
func (p *Store) once(ctx context.Context, do func(pgx.Tx) error) error {
	if p.dialect == "cockroach" {
		return crdbpgx.ExecuteTx(ctx, p.pool, p.tx, do)
	}
	return pgx.BeginTxFunc(ctx, p.pool, p.tx, do)
}

// commitFallback writes what is ours and new, and reports the rest. Links come after the rows, because they
// name only what was written.
func commitFallback(ctx context.Context, tx pgx.Tx, b *core.Batch, links schema.Links, e *encoded) (core.CommitResult, schema.Links, error) {
	res, own, err := writeRows(ctx, tx, b, e)
	if err != nil {
		return res, links, err
	}
	owned := func(partition int) bool { return slices.Contains(own, int64(partition)) }
	if links, err = links.Without(res.Duplicates); err == nil {
		err = writeLinks(ctx, tx, b, links, owned, e)
	}
	if err != nil {
		return res, links, err
	}
	e.fill(b, owned)
	if e.labels.n > 0 {
		if err := execute(ctx, tx, e.sql.newLabels, e.labels.params(), func(pgx.Rows) error { return nil }); err != nil {
			return res, links, err
		}
	}
	if e.updates.n == 0 {
		return res, links, nil
	}
	return res, links, execute(ctx, tx, e.sql.update, e.updates.params(), func(pgx.Rows) error { return nil })
}

// writeLinks writes the links of the partitions that are ours. A link that exists already must be of an
// earlier sending of this batch: core.ErrForeignRow otherwise.
func writeLinks(ctx context.Context, tx pgx.Tx, b *core.Batch, links schema.Links, owned func(int) bool, e *encoded) error {
	e.fillLinks(links, owned)
	if e.links.n == 0 {
		return nil
	}
	ours := 0
	err := execute(ctx, tx, e.sql.newLinks, e.links.params(), func(pgx.Rows) error {
		ours++
		return nil
	})
	if err == nil && ours != e.links.n {
		err = fmt.Errorf("commit %d: %d of %d links are ours: %w", b.ID, ours, e.links.n, core.ErrForeignRow)
	}
	return err
}

// writeRows writes births and journal rows that are ours and new. It returns what it left out, and the
// partitions that are ours. It counts: a row that was not written must be a duplicate's or stand from an
// earlier sending. Error: core.ErrForeignRow.
func writeRows(ctx context.Context, tx pgx.Tx, b *core.Batch, e *encoded) (res core.CommitResult, own []int64, err error) {
	own, born, written, err := writeNew(ctx, tx, b, e)
	if err != nil {
		return res, own, err
	}
	owned := func(partition int) bool { return slices.Contains(own, int64(partition)) }
	for i := range b.Partitions {
		if p := b.Partitions[i].Partition; !owned(p) {
			res.Fenced = append(res.Fenced, p)
		}
	}
	births, records := expected(b, owned)
	if born != births {
		left, err := leftOut(ctx, tx, b, owned, &res)
		if err != nil {
			return res, own, err
		}
		// The journal rows of duplicates are not written either.
		records -= left
	}
	if written != records {
		// Rows are missing from what was written now. They are fine if they stand from an earlier sending of
		// this batch.
		ours, err := countOurs(ctx, tx, b, own)
		if err != nil {
			return res, own, err
		}
		if ours != records {
			return res, own, fmt.Errorf("commit %d: %d of %d journal rows are ours: %w", b.ID, ours, records, core.ErrForeignRow)
		}
	}
	return res, own, nil
}

// writeNew runs the fallback statement. It returns the partitions that are ours, and how many births and
// journal rows it wrote.
func writeNew(ctx context.Context, tx pgx.Tx, b *core.Batch, e *encoded) (own []int64, born, written int, err error) {
	e.fill(b, func(int) bool { return true })
	records := rows[schema.JournalRow]{columns: e.sql.records}
	for i := range b.Writes {
		w := &b.Writes[i]
		for k := range w.Records {
			records.add(schema.NewJournalRow(w, k, b.ID))
		}
	}
	params := slices.Concat(e.partitions.params(), e.births.params(), records.params())
	err = execute(ctx, tx, e.sql.fallback, params, func(r pgx.Rows) error { return r.Scan(&own, &born, &written) })
	return own, born, written, err
}

// execute prepares a statement, which the connection does once, and runs it with parameters in binary form.
func execute(ctx context.Context, tx pgx.Tx, s statement, params [][]byte, scan func(pgx.Rows) error) error {
	prepared, err := tx.Prepare(ctx, s.name, s.sql)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", s.name, err)
	}
	result := tx.Conn().PgConn().ExecStatement(ctx, prepared, params, binaryFormat, binaryFormat)
	rows := pgx.RowsFromResultReader(tx.Conn().TypeMap(), result)
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// expected counts the births and journal rows of the partitions that are ours.
func expected(b *core.Batch, owned func(int) bool) (births, records int) {
	for i := range b.Writes {
		w := &b.Writes[i]
		if !owned(w.Task.Partition) {
			continue
		}
		records += len(w.Records)
		if w.Birth {
			births++
		}
	}
	return births, records
}

// leftOut finds the births that were not written now. Those of an earlier sending of this batch are fine; the
// others are duplicates, and it returns how many journal rows those have.
func leftOut(ctx context.Context, tx pgx.Tx, b *core.Batch, owned func(int) bool, res *core.CommitResult) (int, error) {
	var partitions []int64
	var ids []string
	var places []int64 // of the births in the batch
	for i := range b.Writes {
		if w := &b.Writes[i]; w.Birth && owned(w.Task.Partition) {
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
		// This very birth, from an earlier sending.
		if commit == b.ID && e.Number == w.Task.Number {
			continue
		}
		res.Duplicates = append(res.Duplicates, core.Duplicate{Partition: e.Partition, Number: w.Task.Number, Existing: e})
		left += len(w.Records)
	}
	return left, rows.Err()
}

// countOurs counts the batch's journal rows that are stored under its id, in some partitions.
func countOurs(ctx context.Context, tx pgx.Tx, b *core.Batch, own []int64) (ours int, err error) {
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

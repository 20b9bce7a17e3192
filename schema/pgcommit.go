package schema

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	crdbpgx "github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/internal/core"
)

// $1 is the commit id, where it is a parameter.
var (
	ownSQL = func(first int) string {
		return `UPDATE partitions AS p SET ` + assign(partitionColumns[fenceColumns:]) + ` FROM ` + unnest(first, partitionColumns...) +
			` WHERE p.partition = u.partition AND p.epoch = u.epoch AND p.last_commit IN (u.after, u.last_commit) RETURNING p.partition`
	}
	birthSQL   = `INSERT INTO tasks (` + names(birthColumns) + `, commit_id) SELECT ` + values(birthColumns) + `, $1::INT8 FROM `
	journalSQL = `INSERT INTO journal (` + names(journalColumns) + `, commit_id, format) SELECT ` + values(journalColumns) + `, $1::INT8, CASE WHEN u.input IS NULL THEN 1 ELSE 2 END FROM `

	// A commit as it nearly always goes: every partition ours, every id free, every
	// journal row new. Otherwise it fails, by a division by zero or a key that is
	// taken, and carefulSQL finds out what there is. It needs no look before each
	// insert, and no answer before the end of the transaction.
	fenceSQL       = `WITH own AS (` + ownSQL(1) + `) SELECT 1 / (CASE WHEN (SELECT count(*) FROM own) = cardinality($1::INT8[]) THEN 1 ELSE 0 END)`
	copyBirthsSQL  = `COPY tasks (` + names(birthColumns) + `, commit_id) FROM STDIN (FORMAT binary)`
	copyJournalSQL = `COPY journal (` + names(journalColumns) + `, commit_id, format) FROM STDIN (FORMAT binary)`

	// carefulSQL: the fence, and of births and journal what is ours and new.
	// carefulHereSQL looks for the journal's rows in its generations too.
	carefulSQL     = carefulOf("")
	carefulHereSQL = carefulOf(" AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.partition = u.partition AND j.number = u.number AND j.seq = u.seq)")
	carefulOf      = func(isNew string) string {
		return `WITH own AS (` + ownSQL(2) + `), born AS (` +
			birthSQL + unnest(firstBirth, birthColumns...) + ` JOIN own ON own.partition = u.partition
    ON CONFLICT (partition, id) DO NOTHING RETURNING partition, number
), written AS (` +
			journalSQL + unnest(firstJournal, append(journalColumns[:len(journalColumns):len(journalColumns)], bornColumn)...) + ` JOIN own ON own.partition = u.partition
    WHERE (NOT u.birth OR (u.partition, u.number) IN (SELECT partition, number FROM born))` + isNew + `
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT ARRAY(SELECT partition FROM own), (SELECT count(*) FROM born), (SELECT count(*) FROM written)`
	}

	// rowsSQL updates the rows of tasks whose state changed, in the partitions of
	// its last parameter.
	rowsSQL = `UPDATE tasks AS t SET ` + assign(stateColumns[2:]) + `, commit_id = $1::INT8 FROM ` + unnest(2, stateColumns...) +
		fmt.Sprintf(` WHERE t.partition = u.partition AND t.number = u.number AND t.seq < u.seq AND u.partition = ANY($%d::INT8[])`, ownParam)
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
	watch := p.commits.begin()
	res, err := p.commit(ctx, b, c, watch)
	watch.end(err, errors.Is(err, core.ErrRowRefused) || errors.Is(err, core.ErrBatchRefused))
	if err != nil {
		return core.CommitResult{}, err
	}
	p.knowTasks(c.births.rows)
	return res, p.explained(ctx, res.Duplicates)
}

// commit sends the batch until its outcome is known. What is sent again recognises its
// own rows by the commit id.
func (p *postgres) commit(ctx context.Context, b *core.Batch, c *columns, watch *commitWatch) (core.CommitResult, error) {
	var past sendings
	for try := 0; ; try++ {
		res, err := p.sendOnce(ctx, b, c, try > 0)
		if err == nil {
			return res, nil
		}
		if ctx.Err() == nil {
			judged, send := p.judge(ctx, b, err, &past)
			if !send {
				return core.CommitResult{}, judged
			}
			if movesAll(err) {
				p.pool.Reset()
			}
			watch.failing(judged)
			whose := verdictOf(err).whose
			past.unknown = past.unknown || whose == faultConnection || whose == faultOutcome
		}
		if err := errors.Join(pause(ctx, try), ctx.Err()); err != nil {
			return core.CommitResult{}, fmt.Errorf("commit %d: outcome unknown: %w", b.ID, err)
		}
	}
}

func (p *postgres) sendOnce(ctx context.Context, b *core.Batch, c *columns, before bool) (core.CommitResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.tryMax)
	defer cancel()
	return p.commitOnce(ctx, b, c, before)
}

// explained fills in why those ended that took ids. What is committed must not
// fail for a connection that breaks here: its owner would give up its partitions.
func (p *postgres) explained(ctx context.Context, duplicates []core.Duplicate) error {
	for try := 0; ; try++ {
		err := p.reasons(ctx, duplicates)
		if err == nil || !again(err) {
			return err
		}
		if errors.Join(pause(ctx, try), ctx.Err()) != nil {
			return err
		}
	}
}

// pause waits before try+1: jittered, doubling, half a second at most.
func pause(ctx context.Context, try int) error {
	most := min(5*time.Millisecond<<min(try, 10), 500*time.Millisecond)
	return sleep(ctx, time.Duration(rand.Int64N(int64(most)))+time.Millisecond)
}

// commitOnce tries the plain way first, unless the batch was sent before, or what
// a plain commit cannot do has come up lately, or the database is a CockroachDB,
// whose transactions have to be such that they can be tried again.
func (p *postgres) commitOnce(ctx context.Context, b *core.Batch, c *columns, before bool) (core.CommitResult, error) {
	if !before && p.dialect != "cockroach" && p.wary.Add(-1) < 0 {
		err := p.commitPlainly(ctx, c)
		if sealedOff(err) { // the rows go to journal itself until it has looked again
			p.generation.Store(0)
		} else if !doubtful(err) {
			return core.CommitResult{}, err
		}
	}
	var res core.CommitResult
	err := p.once(ctx, func(tx pgx.Tx) error {
		var err error
		res, err = p.write(ctx, tx, b, c)
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

// commitPlainly sends the statements and the end of the transaction at once: on
// PostgreSQL the statements up to a sync are a transaction.
func (p *postgres) commitPlainly(ctx context.Context, c *columns) error {
	c.generation = int(p.generation.Load())
	return p.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return sendPlain(ctx, conn.Conn(), c) })
}

func sendPlain(ctx context.Context, conn *pgx.Conn, c *columns) error {
	for _, s := range append(plainStatements[:len(plainStatements):len(plainStatements)], journalCopies[c.generation]) {
		if _, err := conn.Prepare(ctx, s.name, s.sql); err != nil {
			return fmt.Errorf("prepare %s: %w", s.name, err)
		}
	}
	return talk(ctx, conn, c.plain)
}

// talk sends messages that end with a sync and reads what the server answers to
// them all. It returns the first error of the server. After any other error
// nobody knows what is still to be read, and the connection is closed.
func talk(ctx context.Context, conn *pgx.Conn, send func(io.Writer) error) error {
	pg := conn.PgConn()
	stop := context.AfterFunc(ctx, func() { _ = pg.Conn().SetDeadline(time.Unix(1, 0)) })
	said, err := exchange(pg, send)
	if stop() && err == nil {
		return said
	}
	return errors.Join(said, err, ctx.Err(), conn.Close(context.WithoutCancel(ctx)))
}

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

// once runs one transaction; on CockroachDB it is tried again there.
func (p *postgres) once(ctx context.Context, do func(pgx.Tx) error) error {
	if p.dialect == "cockroach" {
		return crdbpgx.ExecuteTx(ctx, p.pool, p.tx, do)
	}
	return pgx.BeginTxFunc(ctx, p.pool, p.tx, do)
}

// write commits the careful way: it leaves out what is not ours or not new, and says what.
func (p *postgres) write(ctx context.Context, tx pgx.Tx, b *core.Batch, c *columns) (core.CommitResult, error) {
	var res core.CommitResult
	careful := carefulSQL
	if p.generational() {
		careful = carefulHereSQL
		// A commit of before may be under way still. Its rows are seen by statements
		// that begin after it.
		if _, err := tx.Exec(ctx, holdPartitionsSQL, partitionsOf(b)); err != nil {
			return res, fmt.Errorf("hold the partitions: %w", err)
		}
	}
	own, born, written, err := writeCarefully(ctx, tx, careful, b, c)
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

package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/core"
)

// On PostgreSQL the rows of the journal are in generations where details are
// forgotten: tables that inherit from journal, written one after the other and
// emptied whole. To delete six rows a task one by one costs as much as to write two
// of them, makes the log half as long again, and leaves dead rows by the million to
// vacuum. Who reads journal reads them all; where a row is may be anything.
//
// A generation is empty, open (the newest open one is written), sealed (a constraint
// refuses rows) and empty again. Before it is emptied its tasks are walked over: rows
// of those that are not forgotten move to journal itself, where a purge deletes them
// one by one. Nothing can come in behind the walk, because it is sealed; nothing that
// is forgotten is ever needed again; so what is there after the walk may go.
//
// CockroachDB has no inheritance, and a transaction that reads by an early snapshot,
// as serializable ones do, would miss what moved and was emptied since: there all
// rows are in journal.

const (
	generations = 6 // tables; what is forgotten is there for a third of the retention and some seconds more at most
	// walkPiece is over how many tasks one statement of a walk goes, walkMost how many
	// statements a look makes: the purge of the partitions waits meanwhile.
	walkPiece = 5000
	walkMost  = 20
	// movePiece is of how many tasks rows move at once; their partition cannot commit meanwhile.
	movePiece = 250
)

// pace is how fast generations follow each other.
type pace struct {
	look   time.Duration // between looks of a process
	period time.Duration // a generation is open for this long at least
	lag    time.Duration // after the next is open: every process has looked by then
	grace  time.Duration // what is sealed for the retention and this is walked over; also a twentieth of the retention
}

var usualPace = pace{look: time.Second, period: 10 * time.Second, lag: 5 * time.Second, grace: 5 * time.Second}

// rotation is what a process knows of the generations.
type rotation struct {
	pace
	mu      sync.Mutex
	looked  time.Time // by the owner of any partition
	stepped time.Time // and of the first
	walk    walk
}

// walk is how far a sealed generation is looked through.
type walk struct {
	generation generation
	partitions []int64 // still to walk over
	after      int64   // number in the first of them
}

// generation is a row of journal_generations.
type generation struct {
	number         int
	opened, sealed time.Time // zero: it is not
}

func (g *generation) open() bool { return !g.opened.IsZero() && g.sealed.IsZero() }

func (g *generation) table() string { return generationTable(g.number) }

func generationTable(number int) string { return "journal_" + strconv.Itoa(number) }

// journalCopies write the journal of a plain commit: to journal itself, and to each
// generation by its number.
var journalCopies = func() (all [generations + 1]statement) {
	all[0] = statement{"duly_journal", copyJournalSQL}
	for k := 1; k <= generations; k++ {
		all[k] = statement{"duly_" + generationTable(k), strings.Replace(copyJournalSQL, "COPY journal ", "COPY "+generationTable(k)+" ", 1)}
	}
	return all
}()

// The statements of generations. Their tables' names are no parameters.
const (
	haveGenerationsSQL = `SELECT to_regclass('journal_generations') IS NOT NULL`
	generationsSQL     = `CREATE TABLE IF NOT EXISTS journal_generations (generation INT8 NOT NULL PRIMARY KEY, opened_at TIMESTAMPTZ, sealed_at TIMESTAMPTZ)`
	// Without autovacuum: rows come and go all at once.
	generationSQL      = `CREATE TABLE IF NOT EXISTS %s (LIKE journal INCLUDING ALL) INHERITS (journal) WITH (autovacuum_enabled = false)`
	emptyGenerationSQL = `INSERT INTO journal_generations (generation) SELECT g FROM generate_series(1, $1::INT8) AS g ON CONFLICT DO NOTHING`

	// lookGenerationsSQL also says whether this user may seal and empty them.
	lookGenerationsSQL = `SELECT generation, opened_at, sealed_at, now(), (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = 'journal_generations'::REGCLASS)
		FROM journal_generations ORDER BY generation`
	openGenerationSQL = `UPDATE journal_generations SET opened_at = now() WHERE generation = $1 AND opened_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM journal_generations WHERE opened_at > $2)`
	sealGenerationSQL  = `UPDATE journal_generations SET sealed_at = now() WHERE generation = $1 AND opened_at = $2 AND sealed_at IS NULL`
	clearGenerationSQL = `UPDATE journal_generations SET opened_at = NULL, sealed_at = NULL WHERE generation = $1 AND sealed_at = $2`
	sealSQL            = `ALTER TABLE %[1]s ADD CONSTRAINT %[1]s_sealed CHECK (FALSE) NOT VALID`
	emptySQL           = `TRUNCATE %s`
	unsealSQL          = `ALTER TABLE %[1]s DROP CONSTRAINT %[1]s_sealed`
	// Who reads an old generation holds its lock; who waits behind us would wait as long.
	patienceSQL = `SET LOCAL lock_timeout = 200`

	// walkSQL goes over the tasks from the next one on that has a row in the generation.
	walkSQL = `SELECT max(w.number), array_agg(w.number ORDER BY w.number) FILTER (WHERE NOT w.gone) FROM (
		SELECT t.number, ` + isGone + ` AS gone FROM tasks t
		WHERE t.partition = $1 AND t.number >= (SELECT min(j.number) FROM ONLY %[1]s j WHERE j.partition = $1 AND j.number > $2)
			AND t.number <= (SELECT max(j.number) FROM ONLY %[1]s j WHERE j.partition = $1) ORDER BY t.number LIMIT $3) AS w`
	// isGone: forgotten. What is in error stays for a person.
	isGone = `(t.state IN ('processed', 'undone') AND ` + isForgotten + `)`
)

// moveSQL moves rows of tasks that are not forgotten, as is looked again now that no
// purge can come between.
var moveSQL = `WITH moved AS (DELETE FROM ONLY %[1]s WHERE ` +
	placed(`ONLY %[1]s AS j`, ` AND EXISTS (SELECT 1 FROM tasks t WHERE t.partition = ?1 AND t.number = j.number AND NOT `+isGone+`)`, `TRUE`) + ` RETURNING *)
	INSERT INTO journal (` + names(journalColumns) + `, commit_id, format) SELECT ` + names(journalColumns) + `, commit_id, format FROM moved`

// makeGenerations makes the tables where they are not yet.
func (p *postgres) makeGenerations(ctx context.Context, db *sql.DB) error {
	if p.dialect != "postgres" {
		return nil
	}
	var have bool
	if err := db.QueryRowContext(ctx, haveGenerationsSQL).Scan(&have); err != nil || have {
		return err
	}
	return inTransaction(ctx, db, func(tx *sql.Tx) error {
		makes := []string{generationsSQL}
		for k := 1; k <= generations; k++ {
			makes = append(makes, fmt.Sprintf(generationSQL, generationTable(k)))
		}
		for _, make := range makes {
			if _, err := tx.ExecContext(ctx, make); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, emptyGenerationSQL, generations)
		return err
	})
}

// generational: the journal may be in generations.
func (p *postgres) generational() bool {
	return p.dialect == "postgres" && p.tx.IsoLevel == pgx.ReadCommitted
}

// rotate looks which generation is written, once in a while; the owner of the first
// partition also takes the next step with them: each is a transaction that happens
// only if things still stand as they were seen.
func (p *postgres) rotate(ctx context.Context, partition int, detail core.Instant) error {
	r := &p.rotation
	if !p.generational() || detail == 0 || !r.mu.TryLock() {
		return nil
	}
	defer r.mu.Unlock()
	leads, last := partition == 0, &r.looked
	if leads {
		last = &r.stepped
	}
	if time.Since(*last) < r.look {
		return nil
	}
	*last = time.Now()
	all, now, may, err := p.lookAtGenerations(ctx)
	if err != nil || !leads || !may {
		return err
	}
	err = p.step(ctx, all, now, now.Sub(detail.Time()))
	if sqlState(err) == "55P03" { // somebody reads what is old; another time
		return nil
	}
	return err
}

// lookAtGenerations also takes note of the one that is written. None, until the first
// is opened: rows are in journal.
func (p *postgres) lookAtGenerations(ctx context.Context) (all []generation, now time.Time, may bool, err error) {
	rows, err := p.pool.Query(ctx, lookGenerationsSQL)
	if err != nil {
		return nil, now, false, fmt.Errorf("generations of the journal: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var g generation
		var opened, sealed *time.Time
		if err := rows.Scan(&g.number, &opened, &sealed, &now, &may); err != nil {
			return nil, now, false, fmt.Errorf("generation of the journal: %w", err)
		}
		if opened != nil {
			g.opened = *opened
		}
		if sealed != nil {
			g.sealed = *sealed
		}
		all = append(all, g)
	}
	if err := rows.Err(); err != nil {
		return nil, now, false, fmt.Errorf("generations of the journal: %w", err)
	}
	written := 0
	if newest := newestOf(all); newest != nil {
		written = newest.number
	}
	p.generation.Store(int64(written))
	return all, now, may, nil
}

// newestOf is the open generation that was opened last, nil when none is.
func newestOf(all []generation) *generation {
	var newest *generation
	for i := range all {
		if g := &all[i]; g.open() && (newest == nil || g.opened.After(newest.opened)) {
			newest = g
		}
	}
	return newest
}

// step does what is due: at most one of opening, sealing and emptying. keep is how
// long details are kept.
func (p *postgres) step(ctx context.Context, all []generation, now time.Time, keep time.Duration) error {
	pace, newest := &p.rotation.pace, newestOf(all)
	if newest == nil || now.Sub(newest.opened) >= max(pace.period, keep/(generations-2)) {
		if opened, err := p.openOne(ctx, all, newest); opened || err != nil {
			return err
		}
	}
	var oldest *generation
	for i := range all {
		g := &all[i]
		if g.open() && g != newest && now.Sub(newest.opened) >= pace.lag {
			return p.seal(ctx, g)
		}
		if !g.sealed.IsZero() && (oldest == nil || g.sealed.Before(oldest.sealed)) {
			oldest = g
		}
	}
	if oldest == nil || now.Sub(oldest.sealed) < keep+max(pace.grace, keep/20) {
		return nil
	}
	done, err := p.walkOver(ctx, oldest)
	if err != nil || !done {
		return err
	}
	return p.empty(ctx, oldest)
}

// openOne opens an empty generation, if there is one.
func (p *postgres) openOne(ctx context.Context, all []generation, newest *generation) (bool, error) {
	after := time.Unix(0, 0)
	if newest != nil {
		after = newest.opened
	}
	for i := range all {
		if !all[i].opened.IsZero() {
			continue
		}
		tag, err := p.pool.Exec(ctx, openGenerationSQL, all[i].number, after)
		if err != nil {
			return false, fmt.Errorf("open %s: %w", all[i].table(), err)
		}
		if tag.RowsAffected() == 1 {
			p.generation.Store(int64(all[i].number))
		}
		return true, nil
	}
	return false, nil
}

// seal lets no more rows into a generation, whoever thinks that it is written.
func (p *postgres) seal(ctx context.Context, g *generation) error {
	return p.change(ctx, g, sealGenerationSQL, g.opened, fmt.Sprintf(sealSQL, g.table()))
}

// empty empties a generation that was walked over, for another time.
func (p *postgres) empty(ctx context.Context, g *generation) error {
	err := p.change(ctx, g, clearGenerationSQL, g.sealed, fmt.Sprintf(emptySQL, g.table()), fmt.Sprintf(unsealSQL, g.table()))
	if err == nil { // otherwise the walk holds for the next time
		p.rotation.walk = walk{}
	}
	return err
}

// change does something to a generation's table, and says so, if it stands as it was seen.
func (p *postgres) change(ctx context.Context, g *generation, say string, seen time.Time, do ...string) error {
	err := p.run(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, patienceSQL); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, say, g.number, seen)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		for _, sql := range do {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("change %s: %w", g.table(), err)
	}
	return nil
}

// walkOver goes on with the walk over a sealed generation and reports whether it is
// over: whatever is in there is forgotten.
func (p *postgres) walkOver(ctx context.Context, g *generation) (done bool, err error) {
	w := &p.rotation.walk
	if w.generation.number != g.number || !w.generation.sealed.Equal(g.sealed) { // another's turn may have come between
		partitions, err := column[int64](ctx, &p.reader, `SELECT partition FROM partitions ORDER BY partition`)
		if err != nil {
			return false, fmt.Errorf("partitions: %w", err)
		}
		*w = walk{generation: *g, partitions: partitions}
	}
	for range walkMost {
		if len(w.partitions) == 0 {
			return true, nil
		}
		if err := p.walkPiece(ctx, w); err != nil {
			return false, fmt.Errorf("walk over partition %d in %s: %w", w.partitions[0], g.table(), err)
		}
	}
	return false, nil
}

func (p *postgres) walkPiece(ctx context.Context, w *walk) error {
	var last *int64
	var stay []int64
	err := p.pool.QueryRow(ctx, fmt.Sprintf(dollars(walkSQL), w.generation.table()), w.partitions[0], w.after, walkPiece).Scan(&last, &stay)
	if err != nil {
		return err
	}
	if last == nil {
		w.partitions, w.after = w.partitions[1:], 0
		return nil
	}
	for len(stay) > 0 {
		some := stay[:min(len(stay), movePiece)]
		if err := p.move(ctx, w, some); err != nil {
			return err
		}
		stay = stay[len(some):]
	}
	w.after = *last
	return nil
}

// move takes rows of tasks that stay out of the generation.
func (p *postgres) move(ctx context.Context, w *walk, numbers []int64) error {
	return p.run(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, holdPartitionsSQL, w.partitions[:1]); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(dollars(moveSQL), w.generation.table()), w.partitions[0], numbers)
		return err
	})
}

// sealedOff reports whether a commit failed because its generation is sealed.
func sealedOff(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514" && strings.HasSuffix(pg.ConstraintName, "_sealed")
}

// hideForgotten takes from ended tasks what is forgotten and still there: part of a
// task's rows may have gone with their generation. The mark is read after the rows,
// and what went was marked before it went.
func (r *reader) hideForgotten(ctx context.Context, partition int, found []core.Saved) error {
	ended := func(s *core.Saved) bool {
		return len(s.Journal) > 0 && (s.Row.State == core.StateProcessed || s.Row.State == core.StateUndone)
	}
	forgotten := int64(-1)
	for i := range found {
		s := &found[i]
		if !ended(s) {
			continue
		}
		if forgotten < 0 {
			marks, err := column[int64](ctx, r, qForgottenTo, partition)
			if err != nil || len(marks) == 0 {
				return errors.Join(err, ctx.Err())
			}
			forgotten = marks[0]
		}
		if s.Row.EndNumber > 0 && s.Row.EndNumber <= forgotten {
			s.Journal, s.Row.Input = nil, nil
		}
	}
	return nil
}

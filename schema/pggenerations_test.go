package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtest/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/storetest"
)

// turn takes a step with the generations of the journal.
func turn(tb testing.TB, s schema.Store) (written int) {
	tb.Helper()
	written, err := retried(context.Background(), func() (int, error) { return schema.Turn(context.Background(), s) })
	if err != nil {
		tb.Fatal(err)
	}
	return written
}

// The suite with its journal in a generation.
func TestPostgresGeneration(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		s := open(tb, pgtestdb.URL(tb), schema.Options{})
		if turn(tb, s) == 0 {
			tb.Fatal("no generation is open")
		}
		return s, schema.DB(s)
	})
}

// turning takes a step with the generations before each commit, and before each purge.
type turning struct {
	schema.Store
	tb testing.TB
}

func (t turning) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	turn(t.tb, t.Store)
	return t.Store.Commit(ctx, b)
}

func (t turning) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	turn(t.tb, t.Store)
	return t.Store.Purge(ctx, partition, epoch, detail, row, limit)
}

// The suite while generations open, are sealed, walked over and emptied all the time.
func TestPostgresGenerationsTurn(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		s := open(tb, pgtestdb.URL(tb), schema.Options{})
		return turning{s, tb}, schema.DB(s)
	}, "foreign journal row") // it is found among rows of its own generation and in journal itself
}

// book is a partition's tasks as two processes write them, each with what it knows of
// the generations, and as they should be found.
type book struct {
	*testing.T
	stores [2]schema.Store
	random *rand.Rand
	part   int
	state  core.PartitionState
	commit int64
	at     core.Instant
	mark   int64 // endings up to it are forgotten
	tasks  []*entry
}

type entry struct {
	task core.Task
	rows int
}

func newBook(t *testing.T, seed uint64) *book {
	url := pgtestdb.URL(t)
	b := &book{T: t, part: 1, random: rand.New(rand.NewPCG(seed, 1)), at: core.Instant(1_893_456_000_000_000)}
	b.stores = [2]schema.Store{open(t, url, schema.Options{}), open(t, url, schema.Options{})}
	if err := b.stores[0].Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	b.takeOver()
	return b
}

// beside is the other partition's book.
func (b *book) beside() *book {
	other := &book{T: b.T, stores: b.stores, random: b.random, at: b.at, commit: 1000}
	other.takeOver()
	return other
}

func (b *book) takeOver() {
	b.Helper()
	var err error
	if b.state, err = b.stores[0].TakeOver(b.Context(), b.part, core.Claim{Owner: "node"}); err != nil {
		b.Fatal(err)
	}
}

// write commits through one of the two.
func (b *book) write(by int, writes ...core.TaskWrite) {
	b.Helper()
	b.commit++
	defer func() { b.state.LastCommit = b.commit }()
	res, err := b.stores[by].Commit(b.Context(), &core.Batch{ID: b.commit, Writes: writes, Partitions: []core.PartitionWrite{{
		Partition: b.part, Epoch: b.state.Epoch, After: b.state.LastCommit, NextNumber: b.state.NextNumber, NextEnd: b.state.NextEnd, Told: b.state.NextEnd - 1}}})
	if err != nil || len(res.Fenced) > 0 || len(res.Duplicates) > 0 {
		b.Fatalf("commit %d: %+v, %v", b.commit, res, err)
	}
}

func (b *book) birth(by int) *entry {
	b.Helper()
	w := plainBirth(b.part, b.state.NextNumber)
	w.Task.Input = []byte(`{}`)
	b.state.NextNumber++
	e := &entry{task: *w.Task, rows: 1}
	b.tasks = append(b.tasks, e)
	b.write(by, w)
	return e
}

// goOn gives a task another row, and another state, which ends it or does not.
func (b *book) goOn(by int, e *entry, state core.State) {
	b.Helper()
	t := e.task
	t.Seq++
	t.State, b.at = state, b.at.Add(time.Second)
	t.UpdatedAt = b.at
	if state == core.StateProcessed || state == core.StateUndone || state == core.StateError {
		t.EndedAt, t.EndNumber = b.at, b.state.NextEnd
		b.state.NextEnd++
	}
	e.task, e.rows = t, e.rows+1
	b.write(by, core.TaskWrite{Task: &t, Row: true, Records: []core.Record{{Seq: t.Seq, Kind: core.KindDone, At: b.at, State: state, Step: -1, Next: -1}}})
}

// forget has what ended before now forgotten.
func (b *book) forget(by int) {
	b.Helper()
	if _, err := b.stores[by].Purge(b.Context(), 1, b.state.Epoch, b.at.Add(time.Microsecond), 0, 1000); err != nil {
		b.Fatal(err)
	}
	if err := schema.DB(b.stores[0]).QueryRow(`SELECT forgotten FROM partitions WHERE partition = 1`).Scan(&b.mark); err != nil {
		b.Fatal(err)
	}
}

func (b *book) gone(e *entry) bool {
	return (e.task.State == core.StateProcessed || e.task.State == core.StateUndone) && e.task.EndNumber <= b.mark
}

// check looks for all rows of what is not forgotten, and none of what is.
func (b *book) check() (rows int) {
	b.Helper()
	var numbers []int64
	for _, e := range b.tasks {
		numbers = append(numbers, e.task.Number)
	}
	for by, s := range b.stores {
		saved, err := s.LoadNumbers(b.Context(), b.part, numbers)
		if err != nil || len(saved) != len(b.tasks) {
			b.Fatalf("%d of %d tasks, %v", len(saved), len(b.tasks), err)
		}
		rows = 0
		for i, e := range b.tasks {
			want := e.rows
			if b.gone(e) {
				want = 0
			}
			rows += want
			for k, rec := range saved[i].Journal {
				if rec.Seq != int64(k+1) {
					b.Fatalf("task %d: row %d has seq %d", e.task.Number, k, rec.Seq)
				}
			}
			if got := len(saved[i].Journal); got != want || (want == 0) != (saved[i].Row.Input == nil) {
				b.Fatalf("process %d: task %d, %s, end %d of %d forgotten: %d rows and input %q, want %d", by, e.task.Number, e.task.State, e.task.EndNumber, b.mark, got, saved[i].Row.Input, want)
			}
		}
	}
	return rows
}

// stand counts the rows that there are, of all tasks.
func (b *book) stand() (rows int) {
	b.Helper()
	if err := schema.DB(b.stores[0]).QueryRow(`SELECT count(*) FROM journal`).Scan(&rows); err != nil {
		b.Fatal(err)
	}
	return rows
}

// turnAll takes steps until whatever is there now has been in a generation that was
// emptied since.
func (b *book) turnAll() {
	b.Helper()
	for range 4 * 6 {
		turn(b.T, b.stores[0])
	}
}

// sealed opens a generation, writes, and turns until that one is sealed.
func (b *book) sealed(write func()) {
	b.Helper()
	written := turn(b.T, b.stores[0])
	write()
	for sealed, turns := false, 0; !sealed; turns++ {
		turn(b.T, b.stores[0])
		err := schema.DB(b.stores[0]).QueryRow(`SELECT sealed_at IS NOT NULL FROM journal_generations WHERE generation = $1`, written).Scan(&sealed)
		if err != nil || turns > 20 {
			b.Fatalf("generation %d is not sealed after %d turns: %v", written, turns, err)
		}
	}
}

// Whatever is not forgotten is found whole, by every process, however the generations
// turn meanwhile and whichever a process believes is written.
//
// covers: inv4, inv11
func TestGenerationsKeepWhatIsNotForgotten(t *testing.T) {
	for seed := range uint64(4) {
		b := newBook(t, seed)
		for step := range 300 {
			by := b.random.IntN(2)
			switch n := b.random.IntN(12); {
			case n < 3 || len(b.tasks) == 0:
				b.birth(by)
			case n < 8:
				e := b.tasks[b.random.IntN(len(b.tasks))]
				states := []core.State{core.StateProcessing, core.StateProcessing, core.StateUndoing, core.StatePending, core.StateProcessed, core.StateUndone, core.StateError}
				if e.task.State == core.StateProcessed || e.task.State == core.StateUndone {
					continue // over
				}
				b.goOn(by, e, states[b.random.IntN(len(states))])
			case n < 11:
				turn(t, b.stores[b.random.IntN(2)])
			default:
				b.forget(by)
			}
			if step%20 == 0 {
				b.check()
			}
		}
		b.forget(0)
		b.turnAll()
		if want, got := b.check(), b.stand(); got != want {
			t.Errorf("seed %d: %d rows are left, %d belong to tasks that are not forgotten", seed, got, want)
		}
	}
}

// What is forgotten is not seen, though its rows go later, and not all at once.
//
// covers: inv4
func TestForgottenBeforeItIsGone(t *testing.T) {
	b := newBook(t, 1)
	turn(t, b.stores[0])
	e := b.birth(0)
	turn(t, b.stores[0]) // another is open
	b.goOn(0, e, core.StateProcessed)
	b.forget(0)
	if got := b.stand(); got != 2 {
		t.Errorf("%d rows stand, want both", got)
	}
	b.check()
	if _, err := schema.DB(b.stores[0]).Exec(`DELETE FROM journal WHERE seq = 1`); err != nil { // as when its generation is emptied
		t.Fatal(err)
	}
	b.check()
	var shown int
	if err := schema.DB(b.stores[0]).QueryRow(`SELECT count(*) FROM steps`).Scan(&shown); err != nil || shown != 0 {
		t.Errorf("the view shows %d steps of what is forgotten (%v)", shown, err)
	}
}

// A process that believes that a sealed generation is written loses nothing.
//
// covers: inv11
func TestSealedGenerationTakesNothing(t *testing.T) {
	b := newBook(t, 1)
	b.sealed(func() { b.forget(1) }) // it looks
	b.birth(1)
	b.check()
	var rows int
	if err := schema.DB(b.stores[0]).QueryRow(`SELECT count(*) FROM ONLY journal`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows in journal itself (%v), want the one", rows, err)
	}
}

// A commit of unknown outcome may be under way still when it is sent again.
//
// covers: inv5
func TestSentAgainWhileUnderWay(t *testing.T) {
	b := newBook(t, 1)
	e := b.birth(0)
	written := turn(t, b.stores[0])
	db := schema.DB(b.stores[0])
	first := begin(t, db, fmt.Sprintf(`WITH held AS (UPDATE partitions SET told = told WHERE partition = 1)
		INSERT INTO journal_%d (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
		VALUES (1, %d, 2, now(), 'node', 77, 1, 'done', 'processing', 0, 0, FALSE)`, written, e.task.Number))
	type outcome struct {
		res core.CommitResult
		err error
	}
	again := make(chan outcome, 1)
	task := e.task
	task.Seq = 2
	go func() {
		res, err := schema.Again(context.Background(), b.stores[1], &core.Batch{
			ID: 77, Partitions: []core.PartitionWrite{{Partition: 1, Epoch: b.state.Epoch, After: b.state.LastCommit, NextNumber: b.state.NextNumber, NextEnd: 1}},
			Writes: []core.TaskWrite{{Task: &task, Records: []core.Record{{Seq: 2, Kind: core.KindDone, At: b.at, State: core.StateProcessing, Step: -1, Next: -1}}}},
		})
		again <- outcome{res, err}
	}()
	blocked(t, db)
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	if o := <-again; o.err != nil || len(o.res.Fenced) > 0 {
		t.Fatalf("sent again: %+v, %v", o.res, o.err)
	}
	e.rows = 2
	b.check()
}

// Who reads an old generation for long holds its emptying up, and nothing else.
func TestLongReadOfAGeneration(t *testing.T) {
	b := newBook(t, 1)
	read := begin(t, schema.DB(b.stores[0]), fmt.Sprintf(`SELECT count(*) FROM journal_%d`, turn(t, b.stores[0])))
	e := b.birth(0)
	for range 12 { // all are open, and sealing the first waits in vain
		turn(t, b.stores[0])
		b.goOn(0, e, core.StateProcessing)
	}
	b.check()
	if err := read.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.goOn(0, e, core.StateProcessed)
	b.forget(0)
	b.turnAll()
	if got := b.stand(); got != 0 {
		t.Errorf("%d rows are left", got)
	}
}

// Only the owner of the first partition takes steps; the others look.
func TestOneProcessTurnsTheGenerations(t *testing.T) {
	b := newBook(t, 1)
	b.forget(0) // partition 1
	var open int
	if err := schema.DB(b.stores[0]).QueryRow(`SELECT count(*) FROM journal_generations WHERE opened_at IS NOT NULL`).Scan(&open); err != nil || open != 0 {
		t.Errorf("%d generations were opened by the owner of partition 1 (%v)", open, err)
	}
}

// What is forgotten between the look at it and its move does not move: nobody would
// delete it there.
//
// covers: inv4
func TestForgottenBeforeItMoves(t *testing.T) {
	b := newBook(t, 1)
	b.sealed(func() { b.goOn(0, b.birth(0), core.StateProcessed) })
	db := schema.DB(b.stores[0])
	purge := begin(t, db, `UPDATE partitions SET forgotten = 1 WHERE partition = 1`)
	moved := make(chan error, 1)
	go func() {
		var err error
		for range 6 { // others are sealed first
			_, e := schema.Turn(context.Background(), b.stores[0])
			err = errors.Join(err, e)
		}
		moved <- err
	}()
	blocked(t, db)
	if err := purge.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	b.turnAll()
	if got := b.stand(); got != 0 {
		t.Errorf("%d rows of what is forgotten are left", got)
	}
}

// Who was half through one generation does not go on in another there.
//
// covers: inv11
func TestWalkThatWasAnothers(t *testing.T) {
	b := newBook(t, 1)
	b.sealed(func() { b.birth(0) })
	db := schema.DB(b.stores[0])
	purge := begin(t, db, `UPDATE partitions SET told = told WHERE partition = 1`)
	ctx, cancel := context.WithCancel(t.Context())
	half := make(chan error, 1)
	go func() {
		for {
			if _, err := schema.Turn(ctx, b.stores[0]); err != nil {
				half <- err
				return
			}
		}
	}()
	blocked(t, db)
	cancel()
	if err := <-half; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := purge.Rollback(); err != nil {
		t.Fatal(err)
	}
	other := b.beside()
	for range 40 { // another process goes on, until all of them hold rows of the other
		turn(t, b.stores[1])
		other.birth(1)
	}
	other.check()
	b.turnAll()
	other.check()
	b.check()
}

// A generation that another process has emptied and opened meanwhile is not emptied.
//
// covers: inv4
func TestEmptiedByAnother(t *testing.T) {
	b := newBook(t, 1)
	var e *entry
	b.sealed(func() { e = b.birth(0) })
	db := schema.DB(b.stores[0])
	other := begin(t, db, `UPDATE journal_generations SET opened_at = now(), sealed_at = NULL WHERE generation = 1`)
	late := make(chan error, 1)
	stop, stopped := context.WithCancel(t.Context())
	defer stopped()
	go func() {
		for stop.Err() == nil { // others are sealed first
			if _, err := schema.Turn(t.Context(), b.stores[0]); err != nil {
				late <- err
				return
			}
		}
		late <- nil
	}()
	blocked(t, db)
	stopped()
	for _, statement := range []string{
		`ALTER TABLE journal_1 DROP CONSTRAINT journal_1_sealed`,
		fmt.Sprintf(`INSERT INTO journal_1 (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
			VALUES (1, %d, 2, now(), 'node', 77, 1, 'done', 'processing', 0, 0, FALSE)`, e.task.Number),
	} {
		if _, err := other.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	e.rows = 2
	b.check()
}

package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// This file is what a dialect in a package of its own, such as schema/sqlite, takes from
// here. Users of a store have no use for it.

// Dialect is what differs between the databases in the statements that they share.
type Dialect struct {
	// Params turns the parameters ?1, ?2 of a query into the database's own form.
	Params func(query string) string
	// List makes one parameter of a list.
	List func(values any) any
	// Among is FROM and WHERE of the rows of partition ?1 whose column, number or id, is in the list ?2.
	Among func(table, column string) string
	// Time is an instant as a parameter.
	Time func(core.Instant) any
	// Rows are lists of equal length, from parameter first on, as the rows u of a FROM; each
	// column is a name and a type, INT8, TEXT or TIMESTAMPTZ. RowArgs are the parameters, of
	// []int64, []string and []core.Instant.
	Rows    func(first int, columns ...string) string
	RowArgs func(lists ...any) []any
	// Again reports whether a failed read may succeed when it is tried again; nil: none may.
	Again func(error) bool
	// RolledBack reports whether a failed transaction has changed nothing and may succeed when it is tried
	// again; nil: none may.
	RolledBack func(error) bool
	// Redact is an error of a commit without any value of a task, a user or a password, so that it may be
	// shown; nil: errors have none.
	Redact func(error) error
	// Lock, at the end of a SELECT, locks the rows that it reads. Renew gives the installation with the id ?2
	// the id ?1.
	Lock, Renew string
	// Snapshot begins a transaction whose reads all see one moment; nil: each does.
	Snapshot *sql.TxOptions
}

// Base is the half of a store that is the same for every database: all reading, the operators' changes,
// takeovers and plans, the chain, and the watch over commits. A store of a dialect embeds it and adds the
// commit itself.
type Base struct {
	running
	commits
	asked
	chains chains
	// writer is the handle for the deletes of a chain's old links.
	writer *sql.DB
	// worthRetrying is Dialect.Again.
	worthRetrying func(error) bool

	transact    Transact
	lock, renew string
}

// NewBase makes the base of a store of the tables. transact runs small transactions. Of the handles, writer
// deletes old links, reading is for the owners, asking for people, and changing for what people change; they
// may be the same, and whoever opened them closes them.
func NewBase(d Dialect, of *Tables, transact Transact, writer, reading, asking, changing *sql.DB) *Base {
	a := asked{of: new(d.reader(of, asking)), changing: &counted{DB: changing}, rolledBack: d.RolledBack, snapshot: d.Snapshot}
	a.of.db.slots = &actorSlots{of: map[string]*actorSlot{}}
	b := &Base{running: running{d.reader(of, reading)}, asked: a, writer: writer, worthRetrying: d.Again, transact: transact, lock: d.Lock, renew: d.Renew}
	b.redact = d.Redact
	return b
}

// reader makes a reader over a handle. The number of its queries is counted.
func (d Dialect) reader(of *Tables, db *sql.DB) reader {
	return reader{db: &counted{DB: db}, params: d.Params, list: d.List, among: d.Among, time: d.Time, rows: d.Rows, rowArgs: d.RowArgs,
		tables: of, sql: newQueries(of)}
}

// base is how tests reach what is behind a store of any dialect.
func (b *Base) base() *Base { return b }

// CommitBy calls once with a batch until the outcome is known or ctx ends, and tells of births whose id was
// taken why the task that has it ended. once returns again when the same batch should be sent once more after
// its error. A batch that moves no partition does nothing.
func (b *Base) CommitBy(ctx context.Context, batch *core.Batch, once func(context.Context) (res core.CommitResult, again bool, err error)) (core.CommitResult, error) {
	if err := complete(batch); err != nil || len(batch.Partitions) == 0 {
		return core.CommitResult{}, err
	}
	watch := b.begin()
	res, err := sendUntilKnown(ctx, batch, watch, once)
	watch.end(err, errors.Is(err, core.ErrRowRefused) || errors.Is(err, core.ErrBatchRefused))
	if err != nil {
		return core.CommitResult{}, err
	}
	return res, b.explainWithRetry(ctx, res.Duplicates)
}

// explainWithRetry is explainDuplicates, tried again where that may help. The batch is committed by now: an
// error would make its owner give up the partitions.
func (b *Base) explainWithRetry(ctx context.Context, duplicates []core.Duplicate) error {
	for try := 0; ; try++ {
		err := b.explainDuplicates(ctx, duplicates)
		if err == nil || b.worthRetrying == nil || !b.worthRetrying(err) {
			return err
		}
		if errors.Join(Pause(ctx, try), ctx.Err()) != nil {
			return err
		}
	}
}

// Pause waits before try number try+1, a random time of up to 5 ms at first, doubled with each try up to half
// a second. Error: ctx ended.
func Pause(ctx context.Context, try int) error {
	most := min(5*time.Millisecond<<min(try, 10), 500*time.Millisecond)
	return pause.For(ctx, time.Duration(rand.Int64N(int64(most)))+time.Millisecond)
}

// sendUntilKnown sends a batch until its outcome is known. It tells the watch of each failed try, so that
// Trouble can say why a commit waits.
func sendUntilKnown(ctx context.Context, batch *core.Batch, watch *commitWatch, once func(context.Context) (core.CommitResult, bool, error)) (core.CommitResult, error) {
	for try := 0; ; try++ {
		res, again, err := once(ctx)
		if err == nil || !again {
			return res, err
		}
		watch.failing(err)
		if ended := errors.Join(Pause(ctx, try), ctx.Err()); ended != nil {
			return core.CommitResult{}, fmt.Errorf("commit %d: %w: %w", batch.ID, ended, err)
		}
	}
}

// ForgetPurged makes the next purge of a partition begin with its first rows. A takeover calls it: the owner
// before may have been on another node, with a database that a restore has since taken back in time.
func (b *Base) ForgetPurged(partition int) { b.purged.forget(partition) }

// TablesVersion reads the version of the tables. It is an error if there are none.
func (b *Base) TablesVersion(ctx context.Context) (int64, error) { return b.version(ctx) }

// Statements that the dialects share, with the parameters ?1, ?2 and so on.
const (
	ForgetRowsSQL    = qForgetRows
	ForgetDetailsSQL = qForgetDetails
	ForgetJournalSQL = qForgetJournal
	ForgetLabelsSQL  = qForgetLabels
	AndOldSQL        = andOld
	AndDeadSQL       = andDead
)

// CheckPartitions refuses a configured number of partitions that differs from the stored one.
func CheckPartitions(have, want int) error {
	if have != want {
		return fmt.Errorf("partitions: the database has %d, the configuration says %d; the number is fixed for the life of the data", have, want)
	}
	return nil
}

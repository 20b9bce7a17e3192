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

// Dialect is what the statements that both databases share have to know of one.
type Dialect struct {
	Params func(query string) string         // from ?1 to the dialect's own parameters
	List   func(values any) any              // a list as one parameter
	Among  func(table, column string) string // FROM the rows of partition ?1 whose column, number or id, is in the list ?2
	Time   func(core.Instant) any
	// Rows are lists of equal length, from parameter first on, as the rows u of a FROM; each
	// column is a name and a type, INT8, TEXT or TIMESTAMPTZ. RowArgs are the parameters, of
	// []int64, []string and []core.Instant.
	Rows    func(first int, columns ...string) string
	RowArgs func(lists ...any) []any
	// Again reports whether a read that failed may go well the next time; nil: none does.
	Again func(error) bool
	// RolledBack reports whether a transaction failed that has changed nothing, and may go
	// well the next time; nil: none is known to.
	RolledBack func(error) bool
	// Redact is an error of a commit as it may be shown, without any value; nil: all may be.
	Redact func(error) error
	// Lock has a SELECT keep others from the rows that it reads, and Renew gives the installation ?2 the id ?1.
	Lock, Renew string
	// Snapshot begins a transaction whose reads all see one moment; nil: each does.
	Snapshot *sql.TxOptions
}

// Base is the part of a store that is the same in every dialect: all of its reading, the
// watch over its commits, and what it has to remember for both. A dialect embeds it.
type Base struct {
	running
	commits
	asked
	chains chains
	writer *sql.DB
	worthRetrying  func(error) bool

	transact    Transact
	lock, renew string
}

// NewBase returns the base of a store of tables that writes through transact and one database handle, reads what
// its owner needs through the second, answers questions of people through the third and
// writes what they change through the fourth. They may be the same; none is closed by Base.
func NewBase(d Dialect, of *Tables, transact Transact, writer, reading, asking, changing *sql.DB) *Base {
	a := asked{of: new(d.reader(of, asking)), changing: &counted{DB: changing}, rolledBack: d.RolledBack, snapshot: d.Snapshot}
	a.of.db.slots = &actorSlots{of: map[string]*actorSlot{}}
	b := &Base{running: running{d.reader(of, reading)}, asked: a, writer: writer, worthRetrying: d.Again, transact: transact, lock: d.Lock, renew: d.Renew}
	b.redact = d.Redact
	return b
}

func (d Dialect) reader(of *Tables, db *sql.DB) reader {
	return reader{db: &counted{DB: db}, params: d.Params, list: d.List, among: d.Among, time: d.Time, rows: d.Rows, rowArgs: d.RowArgs,
		tables: of, sql: newQueries(of)}
}

// base is how tests reach what is behind a store of any dialect.
func (b *Base) base() *Base { return b }

// CommitBy sends a batch through once until its outcome is known or ctx ends, and explains
// its duplicates. once reports whether the same batch goes again after its error.
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

// explainWithRetry fills in why the tasks ended that took ids of births. What is committed must
// not fail for a connection that breaks here: its owner would give up its partitions.
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

// Pause waits before try+1: jittered, doubling, half a second at most.
func Pause(ctx context.Context, try int) error {
	most := min(5*time.Millisecond<<min(try, 10), 500*time.Millisecond)
	return pause.For(ctx, time.Duration(rand.Int64N(int64(most)))+time.Millisecond)
}

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

// ForgetPurged forgets how far a partition is purged: at a takeover, because another owner
// may have gone back in time with a restored database.
func (b *Base) ForgetPurged(partition int) { b.purged.forget(partition) }

// TablesVersion is the version of the tables; there have to be some.
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

// CheckPartitions refuses a number of partitions that is not the stored one.
func CheckPartitions(have, want int) error {
	if have != want {
		return fmt.Errorf("partitions: the database has %d, the configuration says %d; the number is fixed for the life of the data", have, want)
	}
	return nil
}

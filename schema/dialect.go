package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pressly/goose/v3"

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
	// Again reports whether a read that failed may go well the next time; nil: none does.
	Again func(error) bool
	// Redact is an error of a commit as it may be shown, without any value; nil: all may be.
	Redact func(error) error
}

// Base is the part of a store that is the same in every dialect: all of its reading, the
// watch over its commits, and what it has to remember for both. A dialect embeds it.
type Base struct {
	running
	commits
	asked
	writer *sql.DB
	again  func(error) bool
}

// NewBase returns the base of a store that writes through one database handle, reads what
// its owner needs through the second and answers questions of people through the third.
// They may be the same; none is closed by Base.
func NewBase(d Dialect, writer, reading, asking *sql.DB) *Base {
	b := &Base{running: running{d.reader(reading)}, asked: asked{of: new(d.reader(asking))}, writer: writer, again: d.Again}
	b.redact = d.Redact
	return b
}

func (d Dialect) reader(db *sql.DB) reader {
	return reader{db: db, params: d.Params, list: d.List, among: d.Among, time: d.Time}
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
	return res, b.explained(ctx, res.Duplicates)
}

// explained fills in why the tasks ended that took ids of births. What is committed must
// not fail for a connection that breaks here: its owner would give up its partitions.
func (b *Base) explained(ctx context.Context, duplicates []core.Duplicate) error {
	for try := 0; ; try++ {
		err := b.reasons(ctx, duplicates)
		if err == nil || b.again == nil || !b.again(err) {
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

// Old is what a purge may take: it was found without holding the partition, and is checked
// again by the statements that take it.
type Old struct {
	Rows, Details []int64 // numbers of tasks
	Inputs        bool    // some of Details hold their input in their row
	Forgotten     int64   // the end number up to which all will be forgotten
}

// PurgeBy looks for up to limit tasks of a partition that are old and has take take them. It
// returns how many tasks take touched.
func (b *Base) PurgeBy(ctx context.Context, partition int, detail, row core.Instant, limit int, take func(*Old) (int, error)) (int, error) {
	return b.purge(ctx, partition, detail, row, limit, func(c *purgeChoice) (int, error) {
		return take(&Old{Rows: c.rows, Details: c.details, Inputs: c.inputs, Forgotten: c.forgotten})
	})
}

// ForgetPurged forgets how far a partition is purged: at a takeover, because another owner
// may have gone back in time with a restored database.
func (b *Base) ForgetPurged(partition int) { b.purged.forget(partition) }

// TakeOverArgs are the parameters of TakeOverSQL.
func (b *Base) TakeOverArgs(st *core.PartitionState) []any { return b.takeOverArgs(st) }

// TablesVersion is the version of the tables; there have to be some.
func (b *Base) TablesVersion(ctx context.Context) (int64, error) { return b.version(ctx) }

// Statements that the dialects share, with the parameters ?1, ?2 and so on.
const (
	PartitionSQL    = qPartition
	TakeOverSQL     = qTakeOver
	BindSQL         = qBindInstallation
	InstallationSQL = qInstallation
	PlanSQL         = qPlan

	ForgetRowsSQL    = qForgetRows
	ForgetDetailsSQL = qForgetDetails
	ForgetInputsSQL  = qForgetInputs
	ForgetJournalSQL = qForgetJournal
	AndOldSQL        = andOld
	AndDeadSQL       = andDead
)

// ScanPartition reads a row of PartitionSQL.
func ScanPartition(row interface{ Scan(...any) error }) (core.PartitionState, error) {
	return scanPartition(row)
}

// CheckPartitions refuses a number of partitions that is not the stored one.
func CheckPartitions(have, want int) error {
	if have != want {
		return fmt.Errorf("partitions: the database has %d, the configuration says %d; the number is fixed for the life of the data", have, want)
	}
	return nil
}

// NewInstallation draws the id of an installation.
func NewInstallation() string { return newInstallation() }

// CheckInstallation refuses a namespace that is not the one of this installation; err is
// that of reading it.
func CheckInstallation(id, bound, namespace string, err error) (string, error) {
	return checkInstallation(id, bound, namespace, err)
}

// CheckRenewed refuses a database that was not of the installation that was named; err is
// that of renewing it.
func CheckRenewed(id, found, was string, err error) (string, error) {
	return checkRenewed(id, found, was, err)
}

// EncodePlan is the stored form of a plan.
func EncodePlan(p *core.Plan) ([]byte, error) { return encodePlan(p) }

// SamePlan compares a stored plan with one to be stored, both in their stored form.
func SamePlan(p *core.Plan, stored, want []byte) error { return samePlan(p, stored, want) }

// After names the steps that step i comes after.
func After(p *core.Plan, i int) string { return after(p, i) }

// InputOf is the task's input where a record keeps it: the first of a birth.
func InputOf(w *core.TaskWrite, record int) []byte { return inputOf(w, record) }

// FormatOf is the format of a journal row that holds that input of its task.
func FormatOf(input []byte) int16 { return formatOf(input) }

// StatusWord is the status of a record's step, "" for none.
func StatusWord(r *core.Record) string { return statusWord(r) }

// Fingerprint groups failures of one kind; "" is no failure.
func Fingerprint(r *core.Record) string { return fingerprint(r) }

// Words makes a name that comes from outside fit for a column of text.
func Words(s string) string { return words(s) }

// Migrator migrates a database by the files of its dialect below schema/migrations, and by
// more, which are none of files.
func Migrator(db *sql.DB, dialect goose.Dialect, dir string, more ...*goose.Migration) (*goose.Provider, error) {
	return migrator(db, dialect, dir, more...)
}

// Migration is the text of a migration's file.
func Migration(dir, path string) (string, error) {
	text, err := migrations.ReadFile("migrations/" + dir + "/" + path)
	if err != nil {
		return "", fmt.Errorf("migration %s: %w", path, err)
	}
	return string(text), nil
}

// HaveVersion is the version of the tables, which it makes ready for migrations. It refuses
// those that a newer binary has been at.
func HaveVersion(ctx context.Context, m *goose.Provider) (int64, error) { return haveVersion(ctx, m) }

// Migrate brings the tables up to the newest version that m knows. What another process
// does meanwhile may be in its way: passing reports whether an error is of that kind.
func Migrate(ctx context.Context, m *goose.Provider, passing func(error) bool) error {
	for try := 1; ; try++ {
		err := migrateOnce(ctx, m)
		if err == nil || try == migrateTries || !passing(err) {
			return err
		}
		if err := Pause(ctx, try); err != nil {
			return err
		}
	}
}

func migrateOnce(ctx context.Context, m *goose.Provider) error {
	if _, err := haveVersion(ctx, m); err != nil {
		return err
	}
	if _, err := m.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// CheckVersion refuses tables that are not those of the newest version that m knows; 0 is
// no tables.
func CheckVersion(have int64, m *goose.Provider) error { return checkVersion(have, newest(m)) }

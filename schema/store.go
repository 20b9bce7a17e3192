package schema

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Store is the state store. It is safe for concurrent use.
type Store interface {
	// Migrate brings the tables up to this binary's version; it refuses a
	// database that is newer.
	Migrate(ctx context.Context) error
	// CheckVersion refuses tables of any other version than this binary's.
	CheckVersion(ctx context.Context) error
	// Ping asks the database whether it answers, over the connections of commits.
	Ping(ctx context.Context) error
	// Close closes the connections. Whoever still uses the store gets errors.
	Close() error
	// Dialect is postgres, cockroach or sqlite; Version the server's own words.
	Dialect() string
	Version() string

	// Partitions makes sure that there are n partitions. n is fixed for the life
	// of the data: another number than the stored one is an error.
	Partitions(ctx context.Context, n int) error
	// Installation is the id of this installation, drawn once. An installation that is bound
	// to another namespace on NATS is an error.
	Installation(ctx context.Context, namespace string) (string, error)
	// Bind binds the installation to a namespace, the first time that it is called. An
	// installation that is bound to another one is an error.
	Bind(ctx context.Context, namespace string) error
	// Renew gives a copy of a database an id of its own, in place of the one that it had,
	// and no namespace yet: it is another installation from then on. It is the operator's to
	// say that nothing uses the copy; the id before has to be named.
	Renew(ctx context.Context, was string) (string, error)
	// TakeOver changes the partition's row as [core.PartitionState.Take] does.
	TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error)
	// Release forgets the partition's owner, if the epoch is still that one.
	Release(ctx context.Context, partition int, epoch int64) error
	// Commit writes a batch: see core.Batch. It tries again by itself until the
	// outcome is known or ctx ends. Errors: core.ErrRowRefused, core.ErrBatchRefused,
	// core.ErrForeignRow.
	Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error)
	// Trouble returns since when a commit has been wanted that does not get through,
	// and what the database said last, without any value of a task, user or password;
	// the zero time when all is well. It reads memory.
	Trouble() (since time.Time, reason error)
	// Purge forgets inputs, results and journals of up to limit tasks of a
	// partition that ended before detail, keeping the row as a tombstone of its
	// id, and the rows of those that ended before row. It returns how many tasks
	// it touched; unfinished tasks and tasks not told yet are never touched.
	Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error)

	// LoadActive returns tasks that are processing or undoing, by number.
	LoadActive(ctx context.Context, as core.AsOf, afterNumber int64, limit int) ([]core.Saved, error)
	// LoadNumbers returns the tasks with these numbers, by number. Those that have no row are left out.
	LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error)
	// LoadIDs returns the tasks with these ids, by number. Those that have no row are left out.
	LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error)
	// Waiting returns parked tasks that wait for room at the agent, by number.
	Waiting(ctx context.Context, as core.AsOf, agent string, afterNumber int64, limit int) ([]int64, error)
	// WaitingAgents returns the agents, and the plans (see core.AwaitedPlan), that parked tasks wait for.
	WaitingAgents(ctx context.Context, as core.AsOf) ([]string, error)
	// Untold returns endings after an end number, in order.
	Untold(ctx context.Context, as core.AsOf, afterEnd int64, limit int) ([]core.Ending, error)
	// Cursors returns the rows of all partitions, by number.
	Cursors(ctx context.Context) ([]core.PartitionState, error)
	// CursorsOf is Cursors of some partitions, and of all whose row names an owner; empty: of none.
	CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error)
	// Unowned is Cursors of those partitions whose row names none of the live nodes.
	Unowned(ctx context.Context, live []string) ([]core.PartitionState, error)
	// Overdue returns unfinished tasks whose bound lies before now and not before since, in
	// the order of partition, bound, number, after a place in that order.
	Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error)

	// Children returns children of a step in the order of their numbers, after one; Youngest in the other order, below
	// one. ChildCounts counts all of them by what became of them.
	Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error)
	Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error)
	ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error)
	// Fresh returns pending tasks with numbers from one on whose rows a commit of those after one up to last has written:
	// those that may have no children yet which the next commit would have had.
	Fresh(ctx context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error)

	// PutPlan stores a plan version; what means the same again is fine, another is
	// core.ErrPlanConflict.
	PutPlan(ctx context.Context, p core.Plan) error
	// Plans returns the plans that this binary can read. Where there are others, of a
	// newer one, the error is core.UnreadablePlans beside those.
	Plans(ctx context.Context) ([]core.Plan, error)

	// Existing returns what is known of the tasks with these ids, with why those ended that did not end well.
	Existing(ctx context.Context, partition int, ids []string) ([]core.Existing, error)

	// What follows is for people who ask, through connections of its own: no commit
	// waits for it. Plans and Cursors, which read a few rows, are the owners' too and go
	// over theirs.

	// Store is what operators read and write.
	operate.Store
	operate.VersionStore
	operate.ForecastStore
	operate.BreakerStore
	operate.LimitStore
	operate.Unsettled
	operate.FlowReader
	// ForgetAudit deletes up to most of the oldest audit entries that were made before a time, and returns how many. Nothing
	// else deletes one.
	ForgetAudit(ctx context.Context, before core.Instant, most int) (int, error)
	// Ended returns tasks that ended at or after a time, of each partition those that ended last first, from a cursor on that
	// is empty at first. A page comes of up to limit rows and may be empty. Of a task it has what a comparison of books needs.
	Ended(ctx context.Context, since core.Instant, limit int, after string) (core.Page, error)
	// Joined counts the tasks that have joined an operation's failure group since its
	// members were frozen, exactly up to operate.CountExactMax.
	Joined(ctx context.Context, op operate.Operation) (operate.Count, error)
	// Counts counts all tasks, however many.
	Counts(ctx context.Context) ([]core.Count, error)
	// Journal returns all rows of a task's journal in order.
	Journal(ctx context.Context, partition int, number int64) ([]core.Record, error)
	// Books reads all tasks and the journal for a check of the books.
	Books(ctx context.Context) (Books, error)
	// Chain is the journal and its proof as of now, for a check of it.
	Chain(ctx context.Context) (chain.Source, error)
	// ChainEnds are the heights of the last links by partition; one without a chain is missing.
	ChainEnds(ctx context.Context) (map[int]int64, error)
	// ChainHeads are the last links of the partitions that were taken over here, as of their
	// last commits here, without installation and time. It reads memory.
	ChainHeads() []chain.Head
}

// Options change how a store is opened.
type Options struct {
	// MaxConns is how many connections PostgreSQL gets from here, beside up to 4 for people; default 8.
	MaxConns int
	// Serializable makes transactions SERIALIZABLE instead of READ COMMITTED, which suffices. PostgreSQL
	// only.
	Serializable bool
	// Timeout bounds a statement; default 30 s. PostgreSQL only.
	Timeout time.Duration
	// Tell hears what a migration waits for; nil: nobody does. PostgreSQL only.
	Tell func(string)
	// Migrations make the tables instead of the files of this binary, for tests of versions to come.
	Migrations fs.FS
	// Chain makes the store keep the chains of the partitions that are taken over through it.
	Chain bool
	// Tables are those that statements are made of; nil: Columns.
	Tables *Tables
}

// complete refuses a batch that writes a task of a partition which it does not move. The fence works by
// moving partitions, and would silently leave such a write out.
func complete(b *core.Batch) error {
	moves := func(partition int) bool {
		for i := range b.Partitions {
			if b.Partitions[i].Partition == partition {
				return true
			}
		}
		return false
	}
	for i := range b.Writes {
		t := b.Writes[i].Task
		if i > 0 && t.Partition == b.Writes[i-1].Task.Partition {
			continue
		}
		if !moves(t.Partition) {
			return fmt.Errorf("commit %d: task %s is of partition %d, which the batch does not move", b.ID, t.ID, t.Partition)
		}
	}
	return nil
}

// inputOf is the input that a journal row stores: the task's in the first row of a birth, and an edit's in
// its own. It is there and not in the task's row, so that deleting the journal forgets it.
func inputOf(w *core.TaskWrite, record int) []byte {
	if w.Birth && record == 0 {
		return w.Task.Input
	}
	return w.Records[record].Input
}

// after lists the names of the steps that step i comes after.
func after(p *core.Plan, i int) string {
	names := make([]string, len(p.Steps[i].After))
	for k, a := range p.Steps[i].After {
		names[k] = p.Steps[a].Name
	}
	return strings.Join(names, ",")
}

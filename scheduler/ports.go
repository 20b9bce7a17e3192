package scheduler

import (
	"context"

	"duly.dev/duly/internal/core"
)

// Store is what the scheduler needs of the state store.
type Store interface {
	// TakeOver changes the partition's row as [core.PartitionState.Take] does.
	TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error)
	// Release gives the partition up, if the epoch is still the caller's, so that a
	// successor need not wait.
	Release(ctx context.Context, partition int, epoch int64) error
	// Commit writes a batch as a whole; it retries by itself until the outcome
	// is known or ctx ends. Errors: core.ErrRowRefused, core.ErrBatchRefused,
	// core.ErrForeignRow.
	Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error)
	LoadActive(ctx context.Context, as core.AsOf, afterNumber int64, limit int) ([]core.Saved, error)
	LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error)
	LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error)
	Waiting(ctx context.Context, as core.AsOf, agent string, afterNumber int64, limit int) ([]int64, error)
	WaitingAgents(ctx context.Context, as core.AsOf) ([]string, error)
	Untold(ctx context.Context, as core.AsOf, afterEnd int64, limit int) ([]core.Ending, error)
	// What schema.Store says of them holds.
	Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error)
	Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error)
	ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error)
	Fresh(ctx context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error)
	Plans(ctx context.Context) ([]core.Plan, error)
	// Deprecated returns the versions that a submission takes only when it names them.
	Deprecated(ctx context.Context) (core.Deprecations, error)
	// CursorsOf returns the rows of some partitions, and of all whose row names an owner; empty: of none. No scheduler
	// reads the rows of all partitions: many nodes would read them again and again.
	CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error)
}

// Expressions evaluates what plans have of them. Each text of an error is what a step fails with.
type Expressions interface {
	// Bind answers for one task, in one event.
	Bind(plan *core.Plan, t *core.Task) core.Asker
	// Children answers the input of the child of one element of an each that has an expression for it.
	Children(plan *core.Plan, t *core.Task, step int) func(index int, element []byte) ([]byte, error)
}

// Question is what an agent is asked about a do that was silent. The complete-by of its command is that of the answer.
type Question struct {
	Command   core.Command
	ResultMax int // bytes of the result that the answer may have
	// Quiet is from when on it counts that the agent says absent: before it a do may still take effect.
	Quiet core.Instant
}

// Bus is where effects leave. No method waits for an agent.
type Bus interface {
	// Send puts commands on their way to the agents. A command that is lost is
	// recovered by its complete-by. Their memory is used again after the call.
	Send(cmds []core.Command)
	// Probe asks an agent what became of a do, again until it says so or until q.CompleteBy, and calls said at most once,
	// from any goroutine, with what it says: done, or absent. Its memory may be kept.
	Probe(q Question, said func(core.Probe))
	// Publish stores endings, or creations, in the event stream and calls done once, with nil when
	// all of them are stored. Their memory is used again after the call.
	Publish(endings []core.Ending, done func(error))
	// Refuse stores refusals in the event stream and waits for it.
	Refuse(ctx context.Context, refused []core.Status) error
	// Notify sends a status to a submitter's private subject.
	Notify(subject string, status core.Status)
	// Live publishes a status for those who watch the task just now.
	Live(status core.Status)
	// Record keeps outside the database what has been committed. It does not wait;
	// what is lost is recorded again after the next commit.
	Record(all []core.Evidence)
	// Dead stores what could not be stored as a task, with its cause.
	Dead(ctx context.Context, partition int, sub core.Submission, cause string) error
}

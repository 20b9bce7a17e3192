package scheduler

import (
	"context"

	"duly.dev/duly/internal/core"
)

// Store is what the scheduler needs of the state store.
type Store interface {
	// TakeOver raises the partition's epoch and makes the claimant its owner, as [core.PartitionState.Take]
	// describes. It returns the row as it is then, with what was found.
	TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error)
	// Release gives the partition up, if the epoch is still the caller's, so that a
	// successor need not wait.
	Release(ctx context.Context, partition int, epoch int64) error
	// Commit writes a batch in one transaction. It retries by itself until the outcome is known or ctx ends.
	// Errors: core.ErrRowRefused, core.ErrBatchRefused, core.ErrForeignRow. A partition whose epoch is no
	// longer ours is left out of the commit and named in the result; that is no error.
	Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error)
	// The loads return tasks with their journals, so that they can be replayed. as is the partition as its
	// owner believes it is: a store in which the row has another epoch or last commit fails the read, so an
	// owner never acts on a successor's rows.
	LoadActive(ctx context.Context, as core.AsOf, afterNumber int64, limit int) ([]core.Saved, error)
	LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error)
	LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error)
	// Waiting returns the numbers of tasks parked for room at an agent, in the order of numbers;
	// WaitingAgents the agents at which any are parked.
	Waiting(ctx context.Context, as core.AsOf, agent string, afterNumber int64, limit int) ([]int64, error)
	WaitingAgents(ctx context.Context, as core.AsOf) ([]string, error)
	// Untold returns endings with an end number above afterEnd, whether or not they were published before.
	Untold(ctx context.Context, as core.AsOf, afterEnd int64, limit int) ([]core.Ending, error)
	// The next four are described at schema.Store.
	Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error)
	Youngest(ctx context.Context, as core.AsOf, of core.Siblings, below int64, limit int) ([]core.ChildRow, error)
	ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error)
	Fresh(ctx context.Context, as core.AsOf, from, after, last int64) ([]core.Fresh, error)
	Plans(ctx context.Context) ([]core.Plan, error)
	// Deprecated returns the versions that a submission takes only when it names them.
	Deprecated(ctx context.Context) (core.Deprecations, error)
	// CursorsOf returns the rows of some partitions, and of all whose row names the owner (with an empty
	// owner: of none). A scheduler never reads the rows of all partitions: with many nodes that read would be
	// repeated again and again.
	CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error)
}

// Expressions evaluates the expressions of plans. The text of an error becomes the error with which the step
// fails.
type Expressions interface {
	// Bind returns an evaluator for one task while one event is applied to it.
	Bind(plan *core.Plan, t *core.Task) core.Asker
	// Children returns the function that computes a child's input from one element of an each step's list.
	Children(plan *core.Plan, t *core.Task, step int) func(index int, element []byte) ([]byte, error)
}

// Question asks an agent what became of a do that it did not answer in time. Command.CompleteBy is until when
// the agent may answer the question.
type Question struct {
	Command   core.Command
	ResultMax int // bytes of the result that the answer may have
	// Quiet is the instant from which "absent" proves that there is no effect. An earlier "absent" proves
	// nothing: a copy of the do may still be on its way.
	Quiet core.Instant
}

// Bus is where effects leave. No method waits for an agent.
type Bus interface {
	// Send hands commands to NATS. A command that is lost on the way is detected at its complete-by. Send
	// does not keep the slice: its memory is reused after the call.
	Send(cmds []core.Command)
	// Probe asks an agent what became of a do, and repeats the question until the agent answers done or
	// absent or until q.CompleteBy. It calls said at most once, from any goroutine. It may keep q.
	Probe(q Question, said func(core.Probe))
	// Publish stores endings, or creations, in the event stream. It calls done exactly once, with nil when
	// all of them are stored. It does not keep the slice.
	Publish(endings []core.Ending, done func(error))
	// Refuse stores refusals in the event stream, and returns when they are stored.
	Refuse(ctx context.Context, refused []core.Status) error
	// Notify sends a status to a submitter's private subject.
	Notify(subject string, status core.Status)
	// Live publishes a status, without storing it, for whoever watches the task at this moment.
	Live(status core.Status)
	// Record notes outside the database which commits were made, so that a database that went back is
	// noticed. It does not wait; what is lost is recorded again after the next commit.
	Record(all []core.Evidence)
	// Dead stores a submission that could not be stored as a task in the dead-letter stream, with the cause.
	Dead(ctx context.Context, partition int, sub core.Submission, cause string) error
}

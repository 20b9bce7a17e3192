package ingest

import (
	"context"
	"errors"

	"duly.dev/duly/internal/core"
)

// Plans is the set of plans the door knows.
type Plans interface {
	// Plan returns that version of the type's plan, 0 for its highest, or nil where
	// there is none, or none that this binary can read. It reads memory and is safe
	// for concurrent use; the plan is not changed afterwards.
	Plan(taskType string, version int64) *core.Plan
	// Reload reads the plans again, without waiting, and calls done once, from
	// any goroutine, when Plan answers from what was read. The error is
	// core.UnreadablePlans when all could be read but those.
	Reload(done func(error))
}

// Log is the task stream.
type Log interface {
	// Publish stores the submissions as one message, without waiting, and calls
	// done once with its position: from any goroutine, also before it returns.
	// subs belong to the door again when Publish returns; their inputs are not
	// changed later.
	//
	// An error says that nothing was stored if it is ErrLogDown or ErrLogFull;
	// after any other error nobody knows.
	Publish(partition int, subs []core.Submission, done func(seq uint64, err error))
}

// Errors of a Log after which nothing was stored.
var (
	ErrLogDown = errors.New("the task stream is out of reach")
	ErrLogFull = errors.New("the task stream is full")
)

// Backlog knows how far the readers are behind.
type Backlog interface {
	// Pending is how many messages of the partition nobody has read yet, as last
	// seen. It reads memory.
	Pending(partition int) int64
}

// Reader reads tasks from the state store for the HTTP API.
type Reader interface {
	// Get returns the task of that id with its steps. Error: core.ErrNotFound.
	Get(ctx context.Context, partition int, id string) (core.View, error)
	// List returns one page of tasks without their steps.
	List(ctx context.Context, f core.Filter) (core.Page, error)
	// Counts returns how many tasks of each type are in each state, or of very many at
	// least how many.
	Counts(ctx context.Context) ([]core.Count, error)
	// Cursor returns the last contiguous committed position of the partition in
	// the task stream.
	Cursor(ctx context.Context, partition int) (uint64, error)
}

// Controls stores requests about tasks that exist.
type Controls interface {
	// Ask returns once the request is stored in the partition's control stream.
	Ask(ctx context.Context, partition int, c core.Control) (seq uint64, err error)
}

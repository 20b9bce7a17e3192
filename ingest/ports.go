package ingest

import (
	"errors"

	"duly.dev/duly/internal/core"
)

// Plans is the set of plans the door knows.
type Plans interface {
	// Plan returns that version of the type's plan, 0 for its highest that is not deprecated,
	// or nil where there is none, or none that this binary can read. It reads memory and is safe
	// for concurrent use; the plan is not changed afterwards.
	Plan(taskType string, version int64) *core.Plan
	// Deprecated reports whether that version of the type's plan is deprecated; 0: whether the type has plans and all of
	// them are. It reads memory.
	Deprecated(taskType string, version int64) bool
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
	// after any other error it may be stored or not.
	Publish(partition int, subs []core.Submission, done func(seq uint64, err error))
}

// Errors of a Log after which nothing was stored.
var (
	ErrLogDown = errors.New("the task stream is out of reach")
	ErrLogFull = errors.New("the task stream is full")
)

package ingest

import (
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// Request is a submission as it came in, unchecked. Nobody changes its Input before the answer.
type Request struct {
	submit.Form
	// Looked says that whoever brings it has just looked the id up, and the store has no such task.
	Looked bool
	// Answer is called once, by any goroutine. It must not block, nor call the door. nil: no answer is
	// wanted.
	Answer func(Answer)

	// stream has room reserved for the request; line is the queue in which it waits. The door sets both.
	stream *stream
	line   *line
}

// Answer is what became of a request: stored, or refused for a reason.
type Answer struct {
	Task      string // the id
	Stream    string // where it is stored
	Seq       uint64 // position in the stream
	Partition int
	// Again says that the same submission was accepted before; there will be one task.
	Again bool
	// State is the task's, if the door has looked the id up and found one.
	State core.State
	// Warning says that it has less time than tasks of its plan take; empty: none.
	Warning string
	// Err is nil when it is stored and synced.
	Err *Refusal
}

// Refusal is why a request was not accepted. Answers share refusals, so do not change one.
type Refusal struct {
	// Code is as HTTP's: 400, 404, 413, 429, 503, 504.
	Code int
	// ErrCode is the cause, see CauseTypeName and what follows it.
	ErrCode     int
	Description string // field, value and limit
	// Retry is after how long the same may succeed; 0: never, or not known.
	Retry time.Duration
}

// Error is the description.
func (r *Refusal) Error() string { return r.Description }

// Retryable reports whether the same request may be accepted later.
func (r *Refusal) Retryable() bool { return !core.FinalCode(r.Code) }

// bytes is how much room the request takes in its budget.
func (r *Request) bytes() int64 {
	return int64(r.Form.Bytes() + requestBytesBesides)
}

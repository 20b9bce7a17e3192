package ingest

import (
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// Request is one submission as it came in, unchecked. Its Input is not changed until the answer.
type Request struct {
	submit.Form
	Looked bool // the store was looked at a moment ago, and has no such task
	// Answer is called exactly once, from any goroutine. It must not block and
	// not call the door. nil: no answer is wanted.
	Answer func(Answer)

	stream *stream // whose room it has; of the door
	line   *line   // in which it waits; of the door
}

// Answer is what became of a request: stored, or refused for a reason.
type Answer struct {
	Task      string // the id
	Stream    string // where it is stored
	Seq       uint64 // position in the stream
	Partition int
	Again     bool       // the same was accepted here before; its owner knows one task
	State     core.State // of the task, where the door has looked and found it
	Warning   string     // that it has less time than tasks of its plan take; empty: none
	Err       *Refusal   // nil: stored, synced
}

// Refusal is why a request was not accepted. Several answers may share one: it
// is not changed.
type Refusal struct {
	Code        int           // as HTTP's: 400, 404, 413, 429, 503, 504
	ErrCode     int           // one stable number per cause
	Description string        // field, value and limit
	Retry       time.Duration // when the same may succeed; 0: never, or unknown
}

// Error is the description.
func (r *Refusal) Error() string { return r.Description }

// Retryable reports whether the same request may be accepted later.
func (r *Refusal) Retryable() bool { return !core.FinalCode(r.Code) }

// bytes is what the request takes of the door's room.
func (r *Request) bytes() int64 {
	return int64(r.Form.Bytes() + requestBytesBesides)
}

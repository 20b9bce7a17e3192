package ingest

import (
	"time"

	"duly.dev/duly/internal/core"
)

// Request is one submission as it came in, unchecked.
type Request struct {
	Type       string
	ID         string
	Input      []byte // JSON; not changed until the answer
	CompleteBy string // RFC 3339 or a duration; empty: the plan's time
	StartAt    string // RFC 3339 or a delay; empty: at once
	Version    string // of the plan: a number or core.NewestVersion; empty: the newest
	ReplyTo    string // private status subject; may be empty
	Trace      string // W3C traceparent; a bad one is dropped
	Labels     string // as core.ParseLabels reads them; may be empty
	Looked     bool   // the store was looked at a moment ago, and has no such task
	// Answer is called exactly once, from any goroutine. It must not block and
	// not call the door. nil: no answer is wanted.
	Answer func(Answer)

	stream *stream // whose room it has; of the door
}

// Answer is what became of a request: stored, or refused for a reason.
type Answer struct {
	Task      string // the id
	Stream    string // where it is stored
	Seq       uint64 // position in the stream
	Partition int
	Again     bool     // the same was accepted here before; its owner knows one task
	Warning   string   // that it has less time than tasks of its plan take; empty: none
	Err       *Refusal // nil: stored, synced
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
	return int64(len(r.Type) + len(r.ID) + len(r.Input) + len(r.CompleteBy) + len(r.StartAt) + len(r.Version) + len(r.ReplyTo) + len(r.Trace) + len(r.Labels) + requestBytesBesides)
}

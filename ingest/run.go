package ingest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// turnItems is how many requests the loop takes before it calls Flush.
const turnItems = 256

// errRunning says that Run was called twice.
var errRunning = errors.New("ingest runs already, or has run")

// Ingest is the role: a door, an inbox that any goroutine may fill, and the one loop that uses the door.
type Ingest struct {
	door  *Door
	now   func() core.Instant
	inbox queue[Request]
	wake  chan struct{}
	began atomic.Bool
}

// New makes the role around a door, which must not be used elsewhere from then on. Requests that come before Run
// wait.
func New(door *Door, now func() core.Instant) *Ingest {
	in := &Ingest{door: door, now: now, wake: make(chan struct{}, 1)}
	in.inbox.wake, door.events.wake = in.signal, in.signal
	return in
}

// signal wakes the loop up.
func (in *Ingest) signal() {
	select {
	case in.wake <- struct{}{}:
	default: // the loop has yet to see the last one
	}
}

// Submit takes a request and returns at once. The answer comes from the loop's goroutine, or from this one if
// the door is full or closing. It is safe for concurrent use.
func (in *Ingest) Submit(req Request) {
	if in.door.Admit(in.now(), &req) {
		in.enter(req)
	}
}

// Late refuses a submission that would begin too late to be done; nil: Submit may take it. It does not look
// at the input, so a caller can ask before reading that. It is safe for concurrent use.
func (in *Ingest) Late(f *submit.Form) *Refusal {
	return in.door.Late(in.now(), f)
}

// enter puts a request into the inbox. Room is reserved for it.
func (in *Ingest) enter(req Request) {
	if !in.inbox.put(req) {
		in.door.refuse(&req, stopping())
		in.signal() // the closing loop may have seen its room taken
	}
}

// Stats returns what the door counted.
func (in *Ingest) Stats() Stats { return in.door.Stats(in.now()) }

// Run serves until ctx ends. Then it lets no more requests in, publishes open packs, and returns when every
// request is answered, which takes Config.PublishMax at most. Error: errRunning.
func (in *Ingest) Run(ctx context.Context) error {
	if in.began.Swap(true) {
		return errRunning
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	stop := ctx.Done()
	var batch []Request
	for {
		batch = in.serveOnce(batch)
		if stop == nil && in.door.Idle() {
			return nil
		}
		if due := in.door.Due(in.now()); due != 0 {
			timer.Reset(max(0, due.Sub(in.now())))
		} else {
			timer.Stop()
		}
		select {
		case <-in.wake:
		case <-timer.C:
		case <-stop:
			stop = nil
			in.inbox.close()
			batch = in.serveOnce(batch)
			in.door.Close(in.now())
		}
	}
}

// serveOnce takes what is in the inbox, turnItems at a time, with a Flush after each. It returns the memory
// for the next call.
func (in *Ingest) serveOnce(batch []Request) []Request {
	batch = in.inbox.take(batch)
	for rest := batch; ; {
		now := in.now()
		part := rest[:min(turnItems, len(rest))]
		for i := range part {
			in.door.Take(now, &part[i])
		}
		in.door.Flush(now)
		if rest = rest[len(part):]; len(rest) == 0 {
			clear(batch)
			return batch
		}
	}
}

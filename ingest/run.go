package ingest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// turnItems is how many requests the loop takes before it looks at outcomes and
// the time again.
const turnItems = 256

// errRunning says that Run was called twice.
var errRunning = errors.New("ingest runs already, or has run")

// Ingest is the role: a door, an inbox that any goroutine may fill, and one
// loop that owns the door.
type Ingest struct {
	door  *Door
	now   func() core.Instant
	inbox queue[Request]
	wake  chan struct{}
	began atomic.Bool
}

// New makes the role around a door, which belongs to it from now on. It does
// nothing until Run; requests that come before it wait.
func New(door *Door, now func() core.Instant) *Ingest {
	in := &Ingest{door: door, now: now, wake: make(chan struct{}, 1)}
	in.inbox.wake, door.events.wake = in.signal, in.signal
	return in
}

func (in *Ingest) signal() {
	select {
	case in.wake <- struct{}{}:
	default: // the loop has yet to see the last one
	}
}

// Submit takes one request and returns at once. It is safe for concurrent use.
// The answer comes from another goroutine, or from this one when the door is
// full or closing.
func (in *Ingest) Submit(req Request) {
	if in.door.Admit(in.now(), &req) {
		in.enter(req)
	}
}

// Late refuses a submission that would begin too late to be done, as Submit does; nil: Submit may take it. Its input is not
// looked at. It is safe for concurrent use.
func (in *Ingest) Late(f *submit.Form) *Refusal {
	return in.door.Late(in.now(), f)
}

// enter queues a request that has its room.
func (in *Ingest) enter(req Request) {
	if !in.inbox.put(req) {
		in.door.refuse(&req, stopping())
		in.signal() // the closing loop may have seen its room taken
	}
}

// Stats returns what the door counted.
func (in *Ingest) Stats() Stats { return in.door.Stats(in.now()) }

// Run serves until ctx ends. Then it lets nothing more in, publishes what is
// packed and returns when every request has been answered, which takes no
// longer than Config.PublishMax. Error: errRunning.
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

// serveOnce takes what is in the inbox, a part at a time, and flushes after each.
// It returns the memory of the batch.
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

package alerts

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// worker sends the alerts of one channel, one after the other and in their order. What waits is bounded by what the
// stream hands out.
type worker struct {
	l       *leader
	ctx     context.Context
	cancel  context.CancelFunc
	limit   limiter
	wake    chan struct{}
	channel Channel // of the leader's goroutine; the worker's own is in now

	mu       sync.Mutex
	now      Channel
	document string
	waiting  []*flight
}

func newWorker(l *leader, c Channel, document string) *worker {
	w := &worker{l: l, channel: c, now: c, document: document, wake: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(l.ctx)
	return w
}

// change takes another document of the same channel. It is of the leader's goroutine.
func (w *worker) change(c Channel, document string) {
	w.channel, w.document = c, document
	w.mu.Lock()
	w.now = c
	w.mu.Unlock()
}

func (w *worker) put(f *flight) {
	w.mu.Lock()
	w.waiting = append(w.waiting, f)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
}

// stop ends the worker of a channel that is no more; what it has is done.
func (w *worker) stop() { w.cancel() }

func (w *worker) run() {
	for {
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			w.finish()
			return
		}
		for w.next() {
		}
	}
}

// finish lets go of what waits for a channel that is no more. When the leader ends, its alerts come again.
func (w *worker) finish() {
	w.mu.Lock()
	rest := w.waiting
	w.waiting = nil
	w.mu.Unlock()
	for _, f := range rest {
		w.give(f)
	}
}

// give tells the leader that this channel is done with a flight.
func (w *worker) give(f *flight) {
	select {
	case w.l.done <- f:
	case <-w.l.ctx.Done():
	}
}

// next sends the alert that has waited longest; false: none waits, or the worker ends.
func (w *worker) next() bool {
	w.mu.Lock()
	empty, c := len(w.waiting) == 0, w.now
	w.mu.Unlock()
	if empty || w.ctx.Err() != nil {
		return false
	}
	waited, err := w.limit.wait(w.ctx, cmp.Or(c.Rate, rateDefault))
	if err != nil {
		return false
	}
	batch, alert := w.takeBatch(waited)
	err = w.deliver(&c, &alert)
	if w.ctx.Err() != nil && err != nil {
		w.mu.Lock()
		w.waiting = append(batch, w.waiting...) // finish sees to them
		w.mu.Unlock()
		return false
	}
	for range batch {
		w.l.s.ended(&c, err)
	}
	for _, f := range batch {
		w.give(f)
	}
	return true
}

// takeBatch takes the first alert that waits and, where the rate held it up, all events of the same name: they are told
// together.
func (w *worker) takeBatch(fold bool) ([]*flight, core.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.waiting[0]
	batch, rest := []*flight{first}, w.waiting[1:]
	alert := first.alert
	if !fold || alert.Phase != core.AlertOnce {
		w.waiting = append([]*flight(nil), rest...)
		return batch, alert
	}
	times := max(1, alert.Times)
	var kept []*flight
	for _, f := range rest {
		if f.alert.Phase != core.AlertOnce || f.alert.Name != alert.Name {
			kept = append(kept, f)
			continue
		}
		batch, alert = append(batch, f), f.alert
		times += max(1, f.alert.Times)
	}
	alert.Times = times
	w.waiting = kept
	return batch, alert
}

// deliver tries until the channel has the alert, refuses it for good, or RetryFor is over.
func (w *worker) deliver(c *Channel, a *core.Alert) error {
	s, began := w.l.s, time.Now()
	for try := 1; ; try++ {
		err := s.try(w.ctx, c, a)
		if w.ctx.Err() != nil && err != nil {
			return err
		}
		s.tried(c, err)
		s.report()
		var final finalError
		if err == nil || errors.As(err, &final) {
			return err
		}
		wait := core.Backoff(backoffFirst, backoffMost, try, (1+rand.Float64())/2)
		var later laterError
		if errors.As(err, &later) {
			wait = max(wait, later.after)
		}
		if time.Since(began)+wait >= s.cfg.RetryFor {
			return err
		}
		if pause.For(w.ctx, wait) != nil {
			return err
		}
	}
}

// limiter is a token bucket: so many alerts a minute, and a sixth of that at once.
type limiter struct {
	tokens float64
	at     time.Time
}

// burstPart is the part of a minute's alerts that may leave at once.
const burstPart = 6

// wait waits for a token and reports whether it had to.
func (l *limiter) wait(ctx context.Context, rate int) (waited bool, err error) {
	now, perMinute, burst := time.Now(), float64(rate), max(1, float64(rate)/burstPart)
	if l.at.IsZero() {
		l.tokens, l.at = burst, now
	}
	l.tokens, l.at = min(burst, l.tokens+now.Sub(l.at).Minutes()*perMinute), now
	if l.tokens < 1 {
		waited = true
		d := time.Duration((1 - l.tokens) / perMinute * float64(time.Minute))
		if err := pause.For(ctx, d); err != nil {
			return true, err
		}
		l.tokens, l.at = 1, time.Now()
	}
	l.tokens--
	return waited, nil
}

package alerts

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// worker sends the alerts of one channel, one after the other and in their order. What waits is bounded by what the
// stream hands out; for a channel that fails, by most.
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
	waiting  []waits
	fails    bool // its newest try did
	most     int  // alerts that wait for it while it fails
}

// waits is an alert that waits for a channel, and for how many it stands there.
type waits struct {
	*flight
	times int
}

// InFlightMost is how many alerts a [Source] hands out that are not done.
const InFlightMost = 1024

// waitingMost is how many of them wait for channels that fail, each of which has an equal part: were it all, the others would
// hear nothing.
const waitingMost = InFlightMost / 2

// errHeldUp is why an alert is given up that was not tried.
var errHeldUp = errors.New("it has failed while newer alerts came")

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

// may changes how many alerts wait for the channel while it fails.
func (w *worker) may(most int) {
	w.mu.Lock()
	w.most = most
	w.mu.Unlock()
}

// put has an alert wait for its turn, and returns those that wait no longer, see shed.
func (w *worker) put(f *flight) []*flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, waits{f, max(1, f.alert.Times)})
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
	return w.over()
}

// over takes out what waits too much.
func (w *worker) over() (over []*flight) {
	for w.fails && len(w.waiting) > w.most {
		over = append(over, w.shed())
	}
	return over
}

// shed takes out one alert that waits: an event is told together with the next one of its name; where there is none, the
// oldest alert is given up.
func (w *worker) shed() *flight {
	for i, first := range w.waiting {
		if first.alert.Phase != core.AlertOnce {
			continue
		}
		behind := w.waiting[i+1:]
		next := slices.IndexFunc(behind, func(f waits) bool { return f.alert.Phase == core.AlertOnce && f.alert.Name == first.alert.Name })
		if next >= 0 {
			behind[next].times += first.times
			w.waiting = slices.Delete(w.waiting, i, i+1)
			return first.flight
		}
	}
	oldest := w.waiting[0]
	w.waiting = w.waiting[1:]
	w.l.s.ended(&w.now, errHeldUp)
	return oldest.flight
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
		w.give(f.flight)
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
		w.give(f.flight)
	}
	return true
}

// takeBatch takes the first alert that waits and, where the rate held it up, all events of the same name: they are told
// together.
func (w *worker) takeBatch(fold bool) ([]waits, core.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.waiting[0]
	batch, rest := []waits{first}, w.waiting[1:]
	alert, times := first.alert, first.times
	var kept []waits
	for _, f := range rest {
		if !fold || alert.Phase != core.AlertOnce || f.alert.Phase != core.AlertOnce || f.alert.Name != alert.Name {
			kept = append(kept, f)
			continue
		}
		batch, alert = append(batch, f), f.alert
		times += f.times
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
		w.tried(err)
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

// tried notes whether the channel fails.
func (w *worker) tried(err error) {
	w.mu.Lock()
	w.fails = err != nil
	over := w.over()
	w.mu.Unlock()
	for _, f := range over {
		w.give(f)
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

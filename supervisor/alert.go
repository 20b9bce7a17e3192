package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// The defaults of AlertConfig.
const (
	defaultAlertEvery   = 100 * time.Millisecond
	defaultAlertBurst   = 20
	defaultSummaryEvery = 10 * time.Second

	alertKindsMax  = 64
	alertHeldMax   = 10_000 // endings that are not told yet: their messages are in memory
	alertLately    = 64     // alerts that are not told again when their endings come again
	alertErrorMax  = 512    // bytes of an error text that an alert repeats
	alertOtherType = "other types"
)

// AlertConfig bounds the alerts. Zero fields take their defaults.
type AlertConfig struct {
	Every        time.Duration // one alert of its own per so long, on average
	Burst        int           // alerts that may come at once
	SummaryEvery time.Duration // how often the others are told, added up by type and step
}

// Alert says that operator action is required: at one task, or at several that had no
// room of their own.
type Alert struct {
	Task  string // of several: the last one
	Type  string
	Step  string // that failed, if one did
	Error string // cut
	At    core.Instant
	Tasks int // how many tasks it speaks of
}

// Alerter turns endings into alerts and bounds their rate: an outage that fails
// a hundred thousand tasks must not hide the one alert that names its cause. It
// is safe for concurrent use.
type Alerter struct {
	cfg  AlertConfig
	sink Sink

	mu    sync.Mutex
	next  core.Instant  // when the average rate is kept again
	held  map[kind]*sum // not told yet
	count int           // endings in held
	since core.Instant  // of the oldest in held
	fails error         // of a summary that was told before its time, for the next Flush

	lately [alertLately]ending // told one by one, the newest before turn
	turn   int
}

// ending is one ending of a task: a new owner publishes again what may not have been told.
type ending struct {
	task string
	at   core.Instant
}

type kind struct{ taskType, step string }

// sum is an alert about endings that are told together, and what to call for each of them then.
type sum struct {
	Alert
	done []func(error)
}

// NewAlerter makes an alerter that tells sink.
func NewAlerter(cfg AlertConfig, sink Sink) *Alerter {
	cfg.Every = cmp.Or(cfg.Every, defaultAlertEvery)
	cfg.Burst = cmp.Or(cfg.Burst, defaultAlertBurst)
	cfg.SummaryEvery = cmp.Or(cfg.SummaryEvery, defaultSummaryEvery)
	return &Alerter{cfg: cfg, sink: sink, held: map[kind]*sum{}}
}

// Take alerts about one ending, at once or in the next summary, and calls done
// once that is told. Endings that need no person pass in silence. An error says
// that the sink did not take it: the ending should come again. done must not
// call the alerter.
func (a *Alerter) Take(now core.Instant, e core.Ending, done func(error)) {
	if e.State != core.StateError {
		done(nil)
		return
	}
	alert := Alert{Task: e.ID, Type: e.Type, Step: e.Step, Error: core.ShortText(e.Error, alertErrorMax), At: e.At, Tasks: 1}
	is := ending{e.ID, e.At}
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.lately[:], is) {
		done(nil)
		return
	}
	next := max(a.next, now).Add(a.cfg.Every)
	if next.Sub(now) > time.Duration(a.cfg.Burst)*a.cfg.Every {
		a.hold(now, alert, done)
		return
	}
	if err := a.sink.Alert(alert); err != nil {
		done(fmt.Errorf("alert about task %s: %w", e.ID, err))
		return
	}
	a.next = next
	a.lately[a.turn] = is
	a.turn = (a.turn + 1) % alertLately
	done(nil)
}

func (a *Alerter) hold(now core.Instant, alert Alert, done func(error)) {
	k := kind{alert.Type, alert.Step}
	if a.held[k] == nil && len(a.held) >= alertKindsMax {
		alert.Type, alert.Step = alertOtherType, ""
		k = kind{alertOtherType, ""}
	}
	if len(a.held) == 0 {
		a.since = now
	}
	s := a.held[k]
	if s == nil {
		s = &sum{}
		a.held[k] = s
	}
	alert.Tasks += s.Tasks
	s.Alert, s.done = alert, append(s.done, done)
	if a.count++; a.count == alertHeldMax {
		a.fails = a.tellHeld()
	}
}

// Flush tells the summary when it is due.
func (a *Alerter) Flush(now core.Instant) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	failed := a.fails
	if a.fails = nil; len(a.held) == 0 || now < a.since.Add(a.cfg.SummaryEvery) {
		return failed
	}
	return errors.Join(failed, a.tellHeld())
}

// Finish tells whatever has not been told.
func (a *Alerter) Finish() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tellHeld()
}

// tellHeld tells all sums. The endings of those that the sink does not take come again; once it has not taken one, no other
// is tried, as each try may take its time.
func (a *Alerter) tellHeld() error {
	sums := make([]*sum, 0, len(a.held))
	for _, s := range a.held {
		sums = append(sums, s)
	}
	slices.SortFunc(sums, func(x, y *sum) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Step, y.Step))
	})
	clear(a.held)
	a.count = 0
	var failed error
	for _, s := range sums {
		if failed == nil {
			if err := a.sink.Alert(s.Alert); err != nil {
				failed = fmt.Errorf("alert about %d tasks of type %s: %w", s.Tasks, s.Type, err)
			}
		}
		for _, done := range s.done {
			done(failed)
		}
	}
	return failed
}

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
)

func clock() core.Instant { return core.InstantOf(time.Now()) }

var quiet = slog.New(slog.DiscardHandler)

// running starts a runner and returns what ends it and waits for its end.
func running(t *testing.T, r *Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// covers: S27
func TestRunTicksAndResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		w.now = clock
		w.add(0, 1, 1)
		w.rows[0].Bound = clock().Add(2500 * time.Millisecond)
		r := NewRunner(RunConfig{Now: clock}, New(Config{}, w, w, lease{w, "a"}), nil, nil, quiet)
		stop := running(t, r)
		advance(t, 2900*time.Millisecond)
		if n := w.queriesSeen(); n != 3 {
			t.Errorf("%d scans in 2.9s, want 3: at 0, 1 and 2", n)
		}
		advance(t, 200*time.Millisecond)
		if rep := r.Last(); rep.Asked != 1 || !rep.Held {
			t.Errorf("report %+v, want the task asked about at 3s", rep)
		}
		stop()
		if w.holder != "" || w.released != 1 {
			t.Errorf("holder %q, released %d times", w.holder, w.released)
		}
	})
}

// A leader whose loop hangs renews no more, and the other takes over; when it
// wakes it has lost the lease, and what it asked in between does no harm.
//
// covers: E6, S36, S37, T8
func TestStalledLeaderIsSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.now = clock
		stuck := &stallingStore{world: w, release: make(chan struct{})}
		a := NewRunner(RunConfig{Now: clock, TickMax: time.Hour}, New(Config{}, stuck, w, lease{w, "a"}), nil, nil, quiet)
		b := NewRunner(RunConfig{Now: clock}, New(Config{}, w, w, lease{w, "b"}), nil, nil, quiet)
		stopA := running(t, a)
		advance(t, 2500*time.Millisecond)
		stopB := running(t, b)
		advance(t, time.Second)
		if b.Last().Held || !a.Last().Held {
			t.Fatal("two leaders while both are well")
		}
		stuck.stall()
		w.mu.Lock()
		w.rows = []core.Due{{Partition: 0, Number: 1, Bound: clock()}}
		w.mu.Unlock()
		advance(t, w.ttl+2*time.Second)
		if !b.Last().Held {
			t.Fatal("no supervisor took over from a stalled leader")
		}
		if n := w.askedTimes(0); n != 1 {
			t.Fatalf("the successor asked %d times, want 1", n)
		}
		close(stuck.release) // the old leader goes on in the middle of its scan
		advance(t, 1500*time.Millisecond)
		if a.Last().Held {
			t.Error("the old leader still believes that it leads")
		}
		if n := w.askedTimes(0); n > 2 {
			t.Errorf("%d requests, want at most one from each", n)
		}
		stopA()
		if w.holder != "b" {
			t.Errorf("the old leader's end took the lease from %q", "b")
		}
		stopB()
	})
}

// A tick that hangs ends with its time, so that the leadership is tried again.
//
// covers: E10, S27
func TestTickIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		stuck := &stallingStore{world: w, release: make(chan struct{})}
		stuck.stall()
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		failed := 0
		report := func(what Trouble, err error) {
			if what == TroubleTick && errors.Is(err, context.DeadlineExceeded) {
				failed++
			}
		}
		stop := running(t, NewRunner(RunConfig{Now: clock, Report: report}, New(Config{}, stuck, w, always{}), nil, nil, log))
		advance(t, 61*time.Second) // ten hung ticks of 5s, 1s apart
		stop()
		if n := strings.Count(text.String(), "level=WARN"); failed != 10 || n != 0 {
			t.Errorf("%d failures reported, want 10, and %d lines logged about them, want none:\n%s", failed, n, &text)
		}
	})
}

// covers: S14, S30, I22, T5
func TestRunAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		events := &memEvents{more: make(chan core.Ending), fails: 1}
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		alerter := NewAlerter(AlertConfig{Burst: 1}, logSink{log})
		var mu sync.Mutex
		var reports []string
		report := func(what Trouble, err error) {
			mu.Lock()
			defer mu.Unlock()
			if text := fmt.Sprint(err); what == TroubleAlerts && (len(reports) == 0 || reports[len(reports)-1] != text) {
				reports = append(reports, text)
			}
		}
		stop := running(t, NewRunner(RunConfig{Now: clock, Report: report}, New(Config{}, w, w, always{}), events, alerter, log))
		// The first reading fails; the second begins an interval later.
		for _, id := range []string{"d-1", "d-2", "d-3"} {
			events.more <- core.Ending{ID: id, Type: "delivery", Step: "drone", State: core.StateError, Error: "no drone"}
		}
		advance(t, readWell+defaultInterval)
		stop()
		if want := []string{"<nil>", "stream away", "<nil>"}; !slices.Equal(reports, want) && !slices.Equal(reports, want[1:]) {
			t.Errorf("reported %q, want %q", reports, want)
		}
		got := text.String()
		for _, want := range []string{
			`msg="a task is in error: operator action required" task=d-1 type=delivery step=drone error="no drone"`,
			`msg="more tasks are in error: operator action required" task=d-3`, `tasks=2`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("log without %s:\n%s", want, got)
			}
		}
	})
}

// advance lets the bubble's time pass.
func advance(t *testing.T, d time.Duration) {
	t.Helper()
	<-time.After(d)
	synctest.Wait()
}

func (w *world) queriesSeen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queries
}

func (w *world) askedTimes(partition int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked[partition])
}

// stallingStore hangs in its scan once it is told to.
type stallingStore struct {
	*world
	mu      sync.Mutex
	stalled bool
	release chan struct{}
}

func (s *stallingStore) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = true
}

func (s *stallingStore) Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error) {
	s.mu.Lock()
	stalled := s.stalled
	s.mu.Unlock()
	if stalled {
		select {
		case <-s.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.world.Overdue(ctx, since, now, after, limit)
}

type memEvents struct {
	more  chan core.Ending
	fails int
}

func (m *memEvents) Errors(ctx context.Context, take func(e core.Ending, done func(error))) error {
	if m.fails > 0 {
		m.fails--
		return errors.New("stream away")
	}
	for {
		select {
		case e := <-m.more:
			take(e, func(error) {})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// logSink writes alerts to a log.
type logSink struct{ log *slog.Logger }

// Alert implements Sink. It never fails.
func (s logSink) Alert(a Alert) error {
	what := "a task is in error: operator action required"
	if a.Tasks > 1 {
		what = "more tasks are in error: operator action required"
	}
	s.log.Error(what, "task", a.Task, "type", a.Type, "step", a.Step, "error", a.Error, "at", a.At.Time(), "tasks", a.Tasks)
	return nil
}

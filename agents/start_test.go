package agents_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// newStartRig is newRig for a step that begins its work and answers later.
func newStartRig(t *testing.T, config agents.Config, start agents.Starter) *rig {
	return newHandlersRig(t, config, agents.Handlers{Start: start})
}

// inASecond answers after a second, on a goroutine of its own.
func inASecond(_ context.Context, _ *core.Command, done func([]byte, error)) {
	time.AfterFunc(time.Second, func() { done([]byte(`{}`), nil) })
}

// What has begun counts as running until it is done, and the next begins in its place.
func TestStartBoundsCommandsInFlight(t *testing.T) {
	boundsCommandsInFlight(t, agents.Handlers{Start: inASecond})
}

// A thousand calls at a time have no goroutine each.
func TestStartNeedsNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dones []func([]byte, error)
		r := newStartRig(t, agents.Config{}, func(_ context.Context, _ *core.Command, done func([]byte, error)) {
			dones = append(dones, done)
		})
		before := runtime.NumGoroutine()
		for range 1000 {
			r.send(1, time.Minute)
		}
		if len(dones) != 1000 {
			t.Fatalf("%d begun, want all", len(dones))
		}
		if more := runtime.NumGoroutine() - before; more > 20 {
			t.Errorf("%d goroutines more for 1000 calls", more)
		}
		for _, done := range dones {
			done(nil, nil)
		}
		r.end()
		if r.mu.Lock(); len(r.replies) != 1000 {
			t.Errorf("%d answers, want 1000", len(r.replies))
		}
		r.mu.Unlock()
	})
}

// Only the first call of done counts, also before Start returns, and a panic after it
// changes nothing.
func TestStartIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStartRig(t, agents.Config{}, func(_ context.Context, cmd *core.Command, done func([]byte, error)) {
			if cmd.Seq == 2 {
				panic("before")
			}
			done(nil, nil)
			done(nil, agents.Refuse(0, errors.New("no, after all")))
			if cmd.Seq == 1 {
				panic("after")
			}
		})
		for seq := range 3 {
			r.send(int64(seq), time.Minute)
		}
		r.end()
		r.expect("0:ok 1:ok 2:failed")
	})
}

// Past its complete-by an agent is silent, whenever the work ends, and the context
// has ended for the work.
func TestStartIsSilentWhenItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 3)
		r := newStartRig(t, agents.Config{RunningMax: 1}, func(ctx context.Context, cmd *core.Command, done func([]byte, error)) {
			context.AfterFunc(ctx, func() { ended <- context.Cause(ctx) })
			inASecond(ctx, cmd, done)
		})
		r.send(0, 500*time.Millisecond)
		r.send(1, time.Minute)
		r.send(2, 1500*time.Millisecond) // it waits for longer than it has
		pass(3 * time.Second)
		r.send(3, 900*time.Millisecond)
		pass(time.Second)
		r.end()
		r.expect("1:ok")
		for _, want := range []error{context.DeadlineExceeded, context.Canceled, context.DeadlineExceeded} {
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("a context ended with %v, want %v", err, want)
			}
		}
	})
}

// A failure is tried again within the command, as often as by a handler that waits, and
// a done of a try after the next has begun is ignored.
func TestStartIsTriedAgain(t *testing.T) {
	for _, test := range []struct {
		name     string
		outcomes []error
		want     string
		tries    int
	}{
		{"then well", []error{errors.New("busy"), nil}, "5:ok", 2},
		{"never well", []error{errors.New("a"), errors.New("b"), errors.New("c"), nil}, "5:error", 3},
		{"refused", []error{agents.Refuse(0, errors.New("no"))}, "5:refused", 1},
		{"refused after an unclear try", []error{errors.New("a"), agents.Refuse(0, errors.New("no"))}, "5:error", 2},
		{"no time left", []error{errors.New("a"), nil}, "5:error", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			var before func([]byte, error)
			start := func(_ context.Context, _ *core.Command, done func([]byte, error)) {
				err := test.outcomes[tries]
				tries++
				if before != nil {
					before(nil, nil)
				}
				before = done
				time.AfterFunc(time.Millisecond, func() { done(nil, err) })
			}
			left := time.Minute
			if test.name == "no time left" {
				left = 30 * time.Millisecond
			}
			r := newHandlersRig(t, agents.Config{}, agents.Handlers{Start: start, StartUndo: start})
			r.send(5, left)
			pass(5 * time.Second)
			r.end()
			r.expect(test.want)
			if tries != test.tries {
				t.Errorf("%s: %d tries, want %d", test.name, tries, test.tries)
			}
		})
	}
}

// The stop waits for what has begun, cancels its context, and gives up on what ignores
// that.
func TestStartDrains(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newStartRig(t, agents.Config{RunningMax: 1, DrainMax: 1500 * time.Millisecond}, func(ctx context.Context, cmd *core.Command, done func([]byte, error)) {
				if cmd.Seq == 0 {
					inASecond(ctx, cmd, done)
				} else if !deaf {
					context.AfterFunc(ctx, func() { done(nil, ctx.Err()) })
				} else {
					time.AfterFunc(time.Hour, func() { done(nil, nil) })
				}
			})
			for seq := range 3 {
				r.send(int64(seq), time.Minute)
			}
			r.stop()
			err := <-r.done
			if !deaf {
				r.expect("0:ok 1:stopping 2:stopping")
			}
			if deaf != (err != nil && strings.Contains(err.Error(), "2 commands still at work")) {
				t.Errorf("deaf: %v, the end: %v", deaf, err)
			}
			pass(2 * time.Hour) // a late done of a runtime that has ended does no harm
		})
	}
}

// A stop that comes between two tries makes no further one.
func TestStartStopsBetweenTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newStartRig(t, agents.Config{Backoff: time.Minute, BackoffCap: time.Minute, DrainMax: time.Second}, func(_ context.Context, _ *core.Command, done func([]byte, error)) {
			tries++
			done(nil, errors.New("busy"))
		})
		r.send(0, time.Hour)
		r.end()
		r.expect("0:stopping")
		if tries != 1 {
			t.Errorf("%d tries, want 1", tries)
		}
	})
}

// Undo takes the same way, and Handle, which waits, gives the same answers.
func TestStartAnswersAsHandlersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handlers := agents.Handlers{Start: inASecond, StartUndo: func(_ context.Context, _ *core.Command, done func([]byte, error)) {
			done(nil, agents.Refuse(0, errors.New("it stays")))
			done(nil, nil)
		}}
		r := newHandlersRig(t, agents.Config{}, handlers)
		runtime := newRuntime(t, agents.Config{}, handlers)
		for _, undo := range []bool{false, true} {
			cmd := command(time.Minute)
			cmd.Undo = undo
			want, answered := runtime.Handle(t.Context(), core.InstantOf(time.Now()), cmd)
			r.accept(cmd, r.respond)
			pass(2 * time.Second)
			r.mu.Lock()
			if got := r.replies[len(r.replies)-1]; !answered || string(got.Result) != string(want.Result) || got.Code != want.Code || got.Error != want.Error {
				t.Errorf("undo %v: %+v, by Handle %+v", undo, got, want)
			}
			r.mu.Unlock()
		}
		r.end()
	})
}

// TestStartWithAnErrorThatPanics: an error that cannot be asked for its text is a failure of its command, and of no other.
func TestStartWithAnErrorThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStartRig(t, agents.Config{}, func(_ context.Context, cmd *core.Command, done func([]byte, error)) {
			if cmd.Seq == 1 {
				done(nil, (*nilError)(nil))
				return
			}
			done(nil, nil)
		})
		r.send(1, time.Minute)
		r.send(2, time.Minute)
		r.expect("1:failed 2:ok")
		r.end()
	})
}

// A ledger is asked first, and remembers what the work gave; a check needs none.
func TestStartWithALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		effects := 0
		start := func(_ context.Context, _ *core.Command, done func([]byte, error)) {
			mu.Lock()
			effects++
			mu.Unlock()
			time.AfterFunc(time.Second, func() { done([]byte(`{}`), nil) })
		}
		r := newHandlersRig(t, agents.Config{Ledger: agents.NewMemoryLedger(bubbleTime{}.Now, time.Hour, 0)}, agents.Handlers{Start: start, StartUndo: start})
		r.send(0, time.Minute)
		pass(2 * time.Second)
		r.send(1, time.Minute)
		pass(2 * time.Second)
		r.end()
		r.expect("0:ok 1:ok")
		if effects != 1 {
			t.Errorf("%d effects, want 1", effects)
		}
	})
}

func TestRegisterTakesOneKindOfHandler(t *testing.T) {
	runtime := agents.New(agents.Config{Time: bubbleTime{}})
	undo := func(_ context.Context, _ *core.Command, done func([]byte, error)) { done(nil, nil) }
	for _, both := range []agents.Handlers{{Do: nothing, Start: inASecond}, {Do: nothing, Undo: nothing, StartUndo: undo}} {
		if err := runtime.Register("payment", "charge", both); err == nil || !strings.Contains(err.Error(), "charge") {
			t.Errorf("got %v", err)
		}
	}
	if err := runtime.Register("payment", "charge", agents.Handlers{Do: nothing, StartUndo: undo}); err != nil {
		t.Errorf("a do that waits and an undo that does not: %v", err)
	}
}

package agents_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// source hands out what a test puts in.
type source struct {
	accept agents.Accept
	ready  chan struct{}
	broken chan error
}

func (s *source) Serve(ctx context.Context, _ []string, accept agents.Accept) error {
	s.accept = accept
	close(s.ready)
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.broken:
		return err
	}
}

// rig is a runtime at work in a bubble.
type rig struct {
	*source
	t       *testing.T
	stop    context.CancelFunc
	done    chan error
	mu      sync.Mutex
	replies []core.Reply
}

func newRig(t *testing.T, config agents.Config, do agents.Handler) *rig {
	return newHandlersRig(t, config, agents.Handlers{Do: do})
}

func newHandlersRig(t *testing.T, config agents.Config, handlers agents.Handlers) *rig {
	r := &rig{source: &source{ready: make(chan struct{}), broken: make(chan error, 1)}, t: t, done: make(chan error, 1)}
	agent := newRuntime(t, config, handlers)
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.done <- agent.Run(ctx, r.source) }()
	<-r.ready
	return r
}

// send puts a command in whose reply carries seq.
func (r *rig) send(seq int64, left time.Duration) {
	cmd := command(left)
	cmd.Seq = seq
	r.accept(cmd, r.respond)
	synctest.Wait()
}

func (r *rig) respond(reply core.Reply) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies = append(r.replies, reply)
	return nil
}

// codes are the replies so far, as seq:code.
func (r *rig) codes() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, reply := range r.replies {
		all = append(all, string('0'+rune(reply.Seq))+":"+map[int]string{0: "ok", 422: "refused", 429: "full", 500: "error", 501: "unknown", 503: "stopping", 512: "failed"}[reply.Code])
	}
	return strings.Join(all, " ")
}

func (r *rig) expect(want string) {
	r.t.Helper()
	if got := r.codes(); got != want {
		r.t.Errorf("replies: %q, want %q", got, want)
	}
}

// end stops the runtime, which must not fail.
func (r *rig) end() {
	r.t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Error(err)
	}
}

// for one second
func oneSecond(context.Context, *core.Command) ([]byte, error) { pass(time.Second); return nil, nil }

// covers: E13, I16
func TestRunBoundsCommandsInFlight(t *testing.T) {
	boundsCommandsInFlight(t, agents.Handlers{Do: oneSecond})
}

// boundsCommandsInFlight serves a step whose work takes a second.
func boundsCommandsInFlight(t *testing.T, handlers agents.Handlers) {
	synctest.Test(t, func(t *testing.T) {
		r := newHandlersRig(t, agents.Config{RunningMax: 1, WaitingMax: 2}, handlers)
		for seq := range 4 {
			r.send(int64(seq), time.Minute)
		}
		r.expect("3:full")
		pass(time.Second)
		r.expect("3:full 0:ok")
		r.send(4, time.Minute)
		r.send(5, time.Minute)
		r.expect("3:full 0:ok 5:full")
		pass(3 * time.Second)
		r.expect("3:full 0:ok 5:full 1:ok 2:ok 4:ok")
		r.end()
	})
}

// Commands that wait have no goroutine, and a burst leaves none behind.
func TestRunBoundsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, agents.Config{RunningMax: 2}, oneSecond)
		before := runtime.NumGoroutine()
		for range 1000 {
			r.send(1, time.Hour)
		}
		if more := runtime.NumGoroutine() - before; more > 2 {
			t.Errorf("%d goroutines more for 1000 commands of which 2 run", more)
		}
		pass(500 * time.Second)
		synctest.Wait()
		more := runtime.NumGoroutine() - before
		for i := 0; more > 0 && i < 1_000_000; i++ { // the runtime's own come and go
			runtime.Gosched()
			more = runtime.NumGoroutine() - before
		}
		if more > 0 {
			t.Errorf("%d goroutines more after the last command", more)
		}
		r.end()
		if n := len(r.replies); n != 1000 {
			t.Errorf("%d replies, want 1000", n)
		}
	})
}

// What waited past its complete-by is not begun and not answered.
//
// covers: S9, inv6
func TestRunDropsWhatWaitedTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		r := newRig(t, agents.Config{RunningMax: 1}, func(context.Context, *core.Command) ([]byte, error) {
			begun++
			pass(time.Second)
			return nil, nil
		})
		r.send(0, 2*time.Second)
		r.send(1, 500*time.Millisecond)
		r.send(2, 4*time.Second)
		r.end()
		r.expect("0:ok 2:ok")
		if begun != 2 {
			t.Errorf("%d handlers begun, want 2", begun)
		}
	})
}

func TestRunAnswersForAnAgentItDoesNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, agents.Config{}, nothing)
		cmd := command(time.Minute)
		cmd.Agent = "bank"
		r.accept(cmd, r.respond)
		r.expect("5:unknown")
		r.stop()
		<-r.done
	})
}

func TestRunDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		r := newRig(t, agents.Config{RunningMax: 1, DrainMax: 1500 * time.Millisecond}, func(ctx context.Context, _ *core.Command) ([]byte, error) {
			begun++
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
				return nil, nil
			}
		})
		for seq := range 3 {
			r.send(int64(seq), time.Minute)
		}
		start := time.Now()
		r.end()
		r.expect("0:ok 1:stopping 2:stopping")
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("drained for %v", took)
		}
		if begun != 2 {
			t.Errorf("%d handlers begun, want 2: the last only waited", begun)
		}
	})
}

// A handler that ignores its context holds Run up for a bounded time only.
//
// covers: inv6
func TestRunGivesUpOnADeafHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, agents.Config{DrainMax: 5 * time.Second}, func(context.Context, *core.Command) ([]byte, error) {
			pass(time.Hour)
			return nil, nil
		})
		r.send(0, time.Minute)
		start := time.Now()
		r.stop()
		err := <-r.done
		if err == nil || !strings.Contains(err.Error(), "1 commands still at work") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("gave up after %v", took)
		}
		pass(time.Hour)
		r.expect("")
	})
}

func TestRunReportsItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, agents.Config{}, oneSecond)
		r.send(0, time.Minute)
		lost := errors.New("connection closed")
		r.broken <- lost
		if err := <-r.done; !errors.Is(err, lost) || !strings.Contains(err.Error(), "payment") {
			t.Errorf("got %v", err)
		}
		r.expect("0:ok")
		r.stop()
	})
}

func TestRunRefusals(t *testing.T) {
	if err := agents.New(agents.Config{Time: bubbleTime{}}).Run(t.Context(), nil); err == nil {
		t.Error("an agent without a step runs")
	}
	synctest.Test(t, func(t *testing.T) {
		src := &source{ready: make(chan struct{})}
		agent := newRuntime(t, agents.Config{}, agents.Handlers{Do: nothing})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- agent.Run(ctx, src) }()
		<-src.ready
		if err := agent.Run(ctx, src); err == nil {
			t.Error("a second Run beside the first")
		}
		if err := agent.Register("payment", "refund", agents.Handlers{Do: nothing}); err == nil {
			t.Error("a step was added to an agent at work")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An agent's queue keeps its order while it grows and shrinks.
func TestRunKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []int64
		r := newRig(t, agents.Config{RunningMax: 1}, func(_ context.Context, cmd *core.Command) ([]byte, error) {
			order = append(order, cmd.Seq)
			pass(time.Second)
			return nil, nil
		})
		for seq := range int64(300) {
			r.send(seq, time.Hour)
			if seq%3 == 0 {
				pass(time.Second)
			}
		}
		r.stop()
		pass(time.Hour)
		<-r.done
		if len(order) < 100 || !slices.IsSorted(order) {
			t.Errorf("%d in order %v", len(order), order)
		}
	})
}

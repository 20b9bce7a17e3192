package agents_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// What a burst needed does not stay when a trickle is all that is left; what the
// trickle needs does.
func TestRunLetsSpareGoroutinesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 200
		r := newRig(t, agents.Config{}, func(_ context.Context, _ *core.Command) ([]byte, error) {
			pass(100 * time.Millisecond)
			return nil, nil
		})
		before := runtime.NumGoroutine()
		for i := range int64(burst) {
			r.send(i, time.Minute)
		}
		if n := runtime.NumGoroutine() - before; n < burst-1 {
			t.Errorf("%d more goroutines for %d calls at once", n, burst)
		}
		for i := range int64(60) {
			pass(500 * time.Millisecond)
			r.send(burst+2*i, time.Minute)
			r.send(burst+2*i+1, time.Minute)
		}
		pass(time.Second)
		left := runtime.NumGoroutine() - before
		r.stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		if left > 4 {
			t.Errorf("half a minute after %d calls at once %d goroutines wait, with two at work at a time", burst, left)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.replies); n != burst+120 {
			t.Errorf("%d replies, want %d", n, burst+120)
		}
	})
}

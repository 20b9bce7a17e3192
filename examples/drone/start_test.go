package drone

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Start gives what Do and Undo give, and leaves the same books, whatever a call meets.
func TestStartIsDo(t *testing.T) {
	type outcome struct {
		serial uint32
		err    error
		took   time.Duration
	}
	storm := Faults{Refused: 0.1, Transient: 0.2, TimedOut: 0.1, Silent: 0.1}
	for name, o := range map[string]ServiceOptions{
		"at once":           {Seed: 3},
		"with latencies":    {Seed: 3, Scale: 1},
		"slower than asked": {Seed: 3, Scale: 50},
		"in a storm":        {Seed: 3, Scale: 1, Faults: storm},
	} {
		synctest.Test(t, func(t *testing.T) {
			o.Log = true
			waits, starts := newServices(t, o), newServices(t, o)
			// twice has both make the same call, and compares.
			twice := func(step Step, in Call, undo bool) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var want, got outcome
				began := time.Now()
				if undo {
					want.err = waits.Undo(ctx, step, in)
				} else {
					want.serial, want.err = waits.Do(ctx, step, in)
				}
				want.took = time.Since(began)
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				done := make(chan outcome, 2)
				began = time.Now()
				starts.Start(ctx, step, in, undo, func(serial uint32, err error) { done <- outcome{serial, err, time.Since(began)} })
				if got = <-done; !undo && got.serial != want.serial || !errors.Is(got.err, want.err) {
					t.Errorf("%s %s undo %v: %+v, by waiting %+v", name, in.Key, undo, got, want)
				}
				if later := got.took - want.took; later.Abs() > 2*wheelStep {
					t.Errorf("%s %s undo %v: after %v, by waiting %v", name, in.Key, undo, got.took, want.took)
				}
				<-time.After(time.Second) // late effects are over
				if len(done) > 0 {
					t.Errorf("%s %s: done twice", name, in.Key)
				}
			}
			for i := range 60 {
				task := "t" + strconv.Itoa(i)
				for step := range Step(StepCount) {
					twice(step, callOf(task, step, 1), false)
					twice(step, callOf(task, step, 2), false)
					if i%3 == 0 {
						twice(step, callOf(task, step, 1), true)
						twice(step, callOf(task, step, 3), false)
					}
				}
			}
			for _, all := range []*Services{waits, starts} {
				if err := all.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 60 {
				task := "t" + strconv.Itoa(i)
				for step := range Step(StepCount) {
					if want, got := waits.Books().Entry(task, step), starts.Books().Entry(task, step); got != want {
						t.Errorf("%s: %s %s: books say %+v, by waiting %+v", name, task, step, got, want)
					}
				}
				if want, got := len(waits.Books().Log(task)), len(starts.Books().Log(task)); got != want {
					t.Errorf("%s: %s: %d lines in the log, by waiting %d", name, task, got, want)
				}
			}
			bad := make(chan error, 1)
			starts.Start(t.Context(), StepDrone, Call{Task: "a", Key: "b/drone/0", Attempt: 1}, false, func(_ uint32, err error) { bad <- err })
			if err := <-bad; !errors.Is(err, ErrKey) {
				t.Errorf("a key of another task: %v", err)
			}
		})
	}
}

// While a key is at work a second call is too early, and a thousand calls have no
// goroutine each.
func TestStartWaitsWithoutGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newServices(t, ServiceOptions{Seed: 1, Scale: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		before, ended := runtime.NumGoroutine(), make(chan error, 1001)
		for i := range 1000 {
			all.Start(ctx, StepDelivery, callOf("t"+strconv.Itoa(i), StepDelivery, 1), false, func(_ uint32, err error) { ended <- err })
		}
		if more := runtime.NumGoroutine() - before; more > 10 {
			t.Errorf("%d goroutines more for 1000 calls", more)
		}
		all.Start(ctx, StepDelivery, callOf("t7", StepDelivery, 2), false, func(_ uint32, err error) { ended <- err })
		if err := <-ended; !errors.Is(err, ErrTooEarly) {
			t.Errorf("a call beside another of its key: %v", err)
		}
		for range 1000 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

package drone

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// taskWith finds a task whose first do at the step meets a fault in one of its
// variants.
func taskWith(t *testing.T, s *Service, f fault, mode uint64) string {
	t.Helper()
	for i := range 100_000 {
		task := "t" + strconv.Itoa(i)
		c := call{Call: Call{Attempt: 1}, step: s.step, hash: hashText(task)}
		if got := s.draw(&c, 0); got.fault == f && got.mode%4 == mode {
			return task
		}
	}
	t.Fatalf("no task draws fault %d in mode %d", f, mode)
	return ""
}

// doUntil makes one do whose caller gives up after a second.
func doUntil(t *testing.T, s *Service, task string) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, err := s.Do(ctx, callOf(task, s.step, 1))
	return time.Since(began), err
}

// covers: E7, S16
func TestHangingServices(t *testing.T) {
	tests := []struct {
		name        string
		mode        uint64
		atDeadline  Entry // when the caller has given up
		afterwards  Entry // when everything has settled
		lateEffects int64
	}{
		{"effect, then stuck", 0, Entry{Calls: 1, Applied: 1, Live: 1}, Entry{Calls: 1, Applied: 1, Live: 1}, 0},
		{"stuck, then effect", 1, Entry{Calls: 1, Busy: true}, Entry{Calls: 1, Applied: 1, Live: 1}, 1},
		{"late on its way", 2, Entry{Calls: 1}, Entry{Calls: 1, Applied: 1, Live: 1}, 1},
		{"never", 3, Entry{Calls: 1}, Entry{Calls: 1}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newServices(t, ServiceOptions{Seed: 2, Scale: 1, Faults: Faults{TimedOut: 0.5}, Log: true})
				s := all.Service(StepDrone)
				task := taskWith(t, s, faultHang, test.mode)
				took, err := doUntil(t, s, task)
				if !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
					t.Errorf("gave up with %v after %v", err, took)
				}
				wantEntry(t, all.Books(), task, StepDrone, test.atDeadline)
				if err := all.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantEntry(t, all.Books(), task, StepDrone, test.afterwards)
				if got := s.Stats(); got.Silent != 1 || got.Late != test.lateEffects {
					t.Errorf("stats %+v", got)
				}
			})
		})
	}
}

// An undo that overtakes a late do closes the key; the do then finds the tombstone.
//
// covers: E7, T3, inv7
func TestLateDoBehindItsUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newServices(t, ServiceOptions{Seed: 2, Faults: Faults{TimedOut: 0.5}, LateMax: time.Minute})
		s := all.Service(StepDrone)
		task := taskWith(t, s, faultHang, 2)
		_, _ = doUntil(t, s, task)
		if err := all.SetFaults(FaultsNone); err != nil {
			t.Fatal(err)
		}
		if err := s.Undo(t.Context(), callOf(task, StepDrone, 1)); err != nil {
			t.Fatal(err)
		}
		if err := all.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantEntry(t, all.Books(), task, StepDrone, Entry{Calls: 2, Tombstones: 1})
		if got := s.Stats(); got.Gone != 1 {
			t.Errorf("stats %+v, want the late do to be gone", got)
		}
	})
}

// A service that holds the key answers 425 until it is through.
func TestUndoWhileTheServiceHoldsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newServices(t, ServiceOptions{Seed: 2, Faults: Faults{TimedOut: 0.5}, LateMax: time.Minute})
		s := all.Service(StepDrone)
		task := taskWith(t, s, faultHang, 1)
		_, _ = doUntil(t, s, task)
		if err := all.SetFaults(FaultsNone); err != nil {
			t.Fatal(err)
		}
		if err := s.Undo(t.Context(), callOf(task, StepDrone, 1)); !errors.Is(err, ErrTooEarly) {
			t.Errorf("undo: %v, want %v", err, ErrTooEarly)
		}
		if err := all.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Undo(t.Context(), callOf(task, StepDrone, 2)); err != nil {
			t.Errorf("undo: %v", err)
		}
		wantEntry(t, all.Books(), task, StepDrone, Entry{Calls: 3, Applied: 1, Tombstones: 1})
	})
}

// covers: E5
func TestSilentDeaths(t *testing.T) {
	tests := []struct {
		name string
		mode uint64
		want Entry
	}{
		{"before the effect", 0, Entry{Calls: 1}},
		{"during, not made", 1, Entry{Calls: 1}},
		{"during, made", 2, Entry{Calls: 1, Applied: 1, Live: 1}},
		{"after the effect", 3, Entry{Calls: 1, Applied: 1, Live: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newServices(t, ServiceOptions{Seed: 2, Scale: 1, Faults: Faults{Silent: 0.5}})
				s := all.Service(StepPackage)
				task := taskWith(t, s, faultSilent, test.mode)
				took, err := doUntil(t, s, task)
				if !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
					t.Errorf("answered %v after %v; a dead agent does not answer", err, took)
				}
				wantEntry(t, all.Books(), task, StepPackage, test.want)
			})
		})
	}
}

// covers: E11
func TestTransientErrors(t *testing.T) {
	for mode := range uint64(4) {
		all := newServices(t, ServiceOptions{Seed: 2, Faults: Faults{Transient: 0.5}})
		s := all.Service(StepPackage)
		task := taskWith(t, s, faultTransient, mode)
		if _, err := doUntil(t, s, task); !errors.Is(err, ErrUnavailable) {
			t.Errorf("mode %d: %v, want %v", mode, err, ErrUnavailable)
		}
		want := Entry{Calls: 1}
		if mode == 0 { // the error came after the effect
			want = Entry{Calls: 1, Applied: 1, Live: 1}
		}
		wantEntry(t, all.Books(), task, StepPackage, want)
	}
}

func TestSettleCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newServices(t, ServiceOptions{Seed: 2, Faults: Faults{TimedOut: 0.5}, LateMax: time.Hour})
		_, _ = doUntil(t, all.Service(StepDrone), taskWith(t, all.Service(StepDrone), faultHang, 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := all.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("settle: %v, want %v", err, context.DeadlineExceeded)
		}
		if err := all.Settle(t.Context()); err != nil {
			t.Errorf("settle: %v", err)
		}
	})
}

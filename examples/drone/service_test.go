package drone

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newServices(t testing.TB, o ServiceOptions) *Services {
	t.Helper()
	all, err := NewServices(o)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func callOf(task string, step Step, attempt int) Call {
	return Call{Task: task, Key: task + "/" + step.String() + "/0", Attempt: attempt}
}

func mustDo(t testing.TB, s *Service, c Call) uint32 {
	t.Helper()
	serial, err := s.Do(t.Context(), c)
	if err != nil {
		t.Fatalf("do %s: %v", c.Key, err)
	}
	return serial
}

func wantEntry(t *testing.T, b *Books, task string, step Step, want Entry) {
	t.Helper()
	got := b.Entry(task, step)
	got.Serial = 0
	if got != want {
		t.Errorf("%s %s: %+v, want %+v", task, step, got, want)
	}
}

// Reference defect 5: dispatching twice gave two drones.
//
// covers: S40, I23, D5, D6
func TestDoTwiceIsOneEffect(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1})
	s := all.Service(StepDrone)
	first := mustDo(t, s, callOf("a", StepDrone, 1))
	again := mustDo(t, s, callOf("a", StepDrone, 2))
	if first != again {
		t.Errorf("two drones for one package: %d and %d", first, again)
	}
	if other := mustDo(t, s, callOf("b", StepDrone, 1)); other == first {
		t.Errorf("two packages share drone %d", other)
	}
	wantEntry(t, all.Books(), "a", StepDrone, Entry{Calls: 2, Applied: 1, Live: 1})
}

// The whole life of a key, in the order do, do, undo, undo, late do.
//
// covers: inv7
func TestUndoLeavesATombstone(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1, Log: true})
	s := all.Service(StepPackage)
	mustDo(t, s, callOf("a", StepPackage, 1))
	for attempt := range 2 {
		if err := s.Undo(t.Context(), callOf("a", StepPackage, attempt+1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Do(t.Context(), callOf("a", StepPackage, 3)); !errors.Is(err, ErrGone) {
		t.Errorf("late do: %v, want %v", err, ErrGone)
	}
	wantEntry(t, all.Books(), "a", StepPackage, Entry{Calls: 4, Applied: 1, Tombstones: 1})

	lines := all.Books().Log("a")
	want := []struct {
		undo, applied, live bool
		code                int
	}{{false, true, true, 0}, {true, true, false, 0}, {true, false, false, 0}, {false, false, false, 410}}
	if len(lines) != len(want) {
		t.Fatalf("%d lines in the log, want %d", len(lines), len(want))
	}
	for i, w := range want {
		l := lines[i]
		if l.Undo != w.undo || l.Applied != w.applied || l.Live != w.live || l.Code != w.code {
			t.Errorf("line %d: %+v, want %+v", i, l, w)
		}
		if l.Task != "a" || l.Key != "a/package/0" || l.Ended.Before(l.Began) {
			t.Errorf("line %d: %+v", i, l)
		}
	}
}

// covers: inv7
func TestUndoBeforeDo(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1})
	s := all.Service(StepDelivery)
	if err := s.Undo(t.Context(), callOf("a", StepDelivery, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), callOf("a", StepDelivery, 1)); !errors.Is(err, ErrGone) {
		t.Errorf("do behind its undo: %v, want %v", err, ErrGone)
	}
	// A later round is another key.
	next := callOf("a", StepDelivery, 1)
	next.Key = "a/delivery/1"
	mustDo(t, s, next)
	wantEntry(t, all.Books(), "a", StepDelivery, Entry{Calls: 3, Applied: 1, Live: 1, Tombstones: 1})
}

func TestOneCallPerKeyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newServices(t, ServiceOptions{Seed: 1, Scale: 1})
		s := all.Service(StepDrone)
		first := make(chan error)
		go func() {
			_, err := s.Do(t.Context(), callOf("a", StepDrone, 1))
			first <- err
		}()
		synctest.Wait()
		if err := s.Undo(t.Context(), callOf("a", StepDrone, 1)); !errors.Is(err, ErrTooEarly) {
			t.Errorf("undo beside do: %v, want %v", err, ErrTooEarly)
		}
		if err := <-first; err != nil {
			t.Errorf("do: %v", err)
		}
		if err := s.Undo(t.Context(), callOf("a", StepDrone, 2)); err != nil {
			t.Errorf("undo after do: %v", err)
		}
	})
}

func TestGivingUpDuringTheCallLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newServices(t, ServiceOptions{Seed: 1, Scale: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := all.Service(StepDrone).Do(ctx, callOf("a", StepDrone, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
		}
		wantEntry(t, all.Books(), "a", StepDrone, Entry{Calls: 1})
	})
}

func TestSuspendedIsDecidedPerTask(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1, Faults: Faults{Refused: 0.03}})
	s := all.Service(StepAccount)
	const n = 20_000
	refused := 0
	for i := range n {
		task := strconv.Itoa(i)
		_, first := s.Do(t.Context(), callOf(task, StepAccount, 1))
		_, again := s.Do(t.Context(), callOf(task, StepAccount, 2))
		if !errors.Is(again, first) {
			t.Fatalf("task %s: %v, then %v", task, first, again)
		}
		if errors.Is(first, ErrSuspended) {
			refused++
		}
	}
	if refused < n*25/1000 || refused > n*35/1000 {
		t.Errorf("%d of %d refused, want about 3 %%", refused, n)
	}
	if got := s.Stats(); got.Calls != 2*n || got.Refused != int64(2*refused) {
		t.Errorf("stats %+v", got)
	}
}

func TestCallsThatCannotBe(t *testing.T) {
	all := newServices(t, ServiceOptions{})
	for _, key := range []string{"", "a", "a/drone", "a/drone/", "a/drone/x", "a/drone/-1", "a/drone/123456789", "b/drone/0", "a/package/0", "a/drone/0/0"} {
		if _, err := all.Service(StepDrone).Do(t.Context(), Call{Task: "a", Key: key}); !errors.Is(err, ErrKey) {
			t.Errorf("key %q: %v, want %v", key, err, ErrKey)
		}
	}
	if err := all.Service(StepAccount).Undo(t.Context(), callOf("a", StepAccount, 1)); !errors.Is(err, ErrNoUndo) {
		t.Errorf("undo of a check: %v, want %v", err, ErrNoUndo)
	}
	if n := all.Books().Tasks(); n != 0 {
		t.Errorf("%d tasks in the books", n)
	}
}

// Many callers on few keys, for the race detector and for the promise.
//
// covers: I23, D5
func TestOneEffectUnderContention(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 9, Faults: Faults{Transient: 0.3}})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 400 {
				step := Step(i % StepCount)
				c := callOf(strconv.Itoa(i%20), step, w+1)
				_, _ = all.Service(step).Do(t.Context(), c)
				if i%7 == 0 {
					_ = all.Service(step).Undo(t.Context(), c)
				}
			}
		})
	}
	wg.Wait()
	applied := 0
	for i := range 20 {
		for step := range Step(StepCount) {
			e := all.Books().Entry(strconv.Itoa(i), step)
			applied += e.Applied
			if e.Live > 1 || e.Applied > 1 || e.Ghosts > 0 || e.Busy {
				t.Errorf("task %d step %s: %+v", i, step, e)
			}
		}
	}
	if applied == 0 {
		t.Error("no call took effect")
	}
}

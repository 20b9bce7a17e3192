package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
)

const testTarget = 100 * time.Millisecond

// admitted is a window of 2,560 tasks for each of two partitions, in full use.
func admitted() *Admission {
	a := NewAdmission(2560, testTarget)
	a.own(2)
	a.hold(a.Window())
	return a
}

// use keeps the window in full use.
func (a *Admission) use() { a.hold(a.Window() - a.inFlight) }

// The window begins at its floor; good cycles widen it step by step, up to its ceiling.
func TestAdmissionWidens(t *testing.T) {
	a := admitted()
	if got := a.Window(); got != 2*160 {
		t.Fatalf("it begins at %d", got)
	}
	now := core.Instant(0)
	for i := 1; i <= 300; i++ {
		now = now.Add(testTarget)
		a.cycle(now, testTarget)
		if got, want := a.Window(), 2*min(2560, 160+10*i); got != want {
			t.Fatalf("after %d good cycles it is %d, want %d", i, got, want)
		}
		a.use()
	}
}

// A window that is not used is not widened: whether the machine can do more is not known.
func TestAdmissionWidensByUse(t *testing.T) {
	a := admitted()
	a.hold(-a.Window() / 2)
	a.cycle(1, 0)
	if got := a.Window(); got != 2*160 {
		t.Errorf("%d although half of it is idle", got)
	}
	a.hold(1)
	a.cycle(2, 0)
	if got := a.Window(); got != 2*170 {
		t.Errorf("%d although more than half of it is in use", got)
	}
}

// A cycle over the target halves the window, down to its floor; cycles of several shards that are slow for one cause
// count once.
func TestAdmissionHalves(t *testing.T) {
	a := admitted()
	now := core.Instant(0)
	for range 300 {
		now++
		a.cycle(now, 0)
		a.use()
	}
	for _, want := range []int{2 * 1280, 2 * 640, 2 * 320, 2 * 160, 2 * 160} {
		now = now.Add(testTarget)
		a.cycle(now, testTarget+1)
		a.cycle(now.Add(testTarget-1), time.Hour)
		if got := a.Window(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	}
}

// A small ceiling has a floor and a step all the same.
func TestAdmissionOfOne(t *testing.T) {
	a := NewAdmission(3, testTarget)
	a.own(1)
	for _, want := range []int{1, 2, 3, 3} {
		if got := a.Window(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
		a.use()
		a.cycle(1, 0)
	}
}

// Overloaded is a full window at its floor, and nothing else.
func TestOverloaded(t *testing.T) {
	a := NewAdmission(2560, testTarget)
	if a.Overloaded() {
		t.Error("a node without partitions is overloaded")
	}
	a.own(1)
	a.hold(159)
	if a.Overloaded() || !a.Room() {
		t.Error("overloaded with room for one")
	}
	a.hold(1)
	if !a.Overloaded() || a.Room() {
		t.Error("not overloaded at the floor")
	}
	a.cycle(1, 0)
	if a.Overloaded() {
		t.Error("overloaded although cycles are good")
	}
}

// A negative target leaves the window at its ceiling.
func TestAdmissionWithoutATarget(t *testing.T) {
	a := NewAdmission(2560, -1)
	a.own(1)
	a.hold(2560)
	a.cycle(1, time.Hour)
	if got := a.Window(); got != 2560 || a.Room() || a.Overloaded() || a.waiting() {
		t.Errorf("window %d, room %v, overloaded %v", got, a.Room(), a.Overloaded())
	}
}

// All shards of a node share the window: what one has in flight the other cannot take up, and what one lets go of makes
// room for the other's readers.
func TestAdmissionIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(16, testTarget)
		a.own(2)
		clock := func() core.Instant { return 77 }
		one, two := newInbox(clock, nil, a), newInbox(clock, nil, a)
		one.openGate(0, 16)
		two.openGate(1, 16)
		if !one.Admits(0) || !one.Tasks(message(0, 1, 2)) {
			t.Fatal("the window has room")
		}
		if two.Admits(1) {
			t.Error("the window is full, and the other shard does not know")
		}
		took := false
		go func() { took = two.Tasks(message(1, 2, 1)) }()
		synctest.Wait()
		if took {
			t.Error("more in flight than the window allows")
		}
		one.giveBack(one.take())
		synctest.Wait()
		if !took {
			t.Error("there is room again, and the reader of the other shard waits")
		}
		go func() { took = two.Tasks(message(1, 3, 1)) && two.Tasks(message(1, 4, 1)) }()
		synctest.Wait()
		took = false
		a.cycle(1, 0) // wider
		synctest.Wait()
		if !took {
			t.Error("the window is wider, and a reader waits")
		}
		one.closeGate(0)
		two.closeGate(1)
		two.giveBack(two.take())
		if a.inFlight != 0 {
			t.Errorf("%d in flight in the end", a.inFlight)
		}
	})
}

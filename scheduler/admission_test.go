package scheduler

import (
	"math/rand/v2"
	"slices"
	"sync"
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
	a.charge(a.Window())
	return a
}

// at is when the window may be widened for the nth time.
func at(n int) core.Instant { return core.Instant(0).Add(time.Duration(n) * widenEvery) }

// use keeps the window in full use.
func (a *Admission) use() { a.charge(a.Window() - a.inFlight) }

// The window begins at its floor; good cycles widen it step by step, up to its ceiling.
func TestAdmissionWidens(t *testing.T) {
	a := admitted()
	if got := a.Window(); got != 2*160 {
		t.Fatalf("it begins at %d", got)
	}
	now := core.Instant(0)
	for i := 1; i <= 300; i++ {
		now = now.Add(testTarget)
		a.cycle(now, testTarget, 0, 0)
		if got, want := a.Window(), 2*min(2560, 160+10*i); got != want {
			t.Fatalf("after %d good cycles it is %d, want %d", i, got, want)
		}
		a.use()
	}
}

// A window that is not used is not widened: whether the machine can do more is not known.
func TestAdmissionWidensByUse(t *testing.T) {
	a := admitted()
	a.charge(-a.Window() / 2)
	a.cycle(at(1), 0, 0, 0)
	if got := a.Window(); got != 2*160 {
		t.Errorf("%d although half of it is idle", got)
	}
	a.charge(1)
	a.cycle(at(2), 0, 0, 0)
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
		now = now.Add(widenEvery)
		a.cycle(now, 0, 0, 0)
		a.use()
	}
	for _, want := range []int{2 * 1280, 2 * 640, 2 * 320, 2 * 160, 2 * 160} {
		now = now.Add(testTarget)
		a.cycle(now, testTarget+1, 0, 0)
		a.cycle(now.Add(testTarget-1), time.Hour, 0, 0)
		if got := a.Window(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	}
}

// TestAdmissionOfLateAnswers: while most answers of agents are late the window is halved, and while some are it is not
// widened; an agent that has become slow, whose answers are few, changes nothing.
func TestAdmissionOfLateAnswers(t *testing.T) {
	for _, x := range []struct{ answers, late, want int }{{100, 60, 2 * 160}, {100, 40, 2 * 320}, {100, 5, 2 * 330}, {15, 15, 2 * 330}} {
		a := admitted()
		for i := range 16 {
			a.cycle(at(i+1), 0, 0, 0)
			a.use()
		}
		a.cycle(at(20), 0, x.answers, x.late)
		if got := a.Window(); got != x.want {
			t.Errorf("%d of %d answers are late: %d, want %d", x.late, x.answers, got, x.want)
		}
	}
}

// TestWindowWhenNoAnswersCome: late answers keep the window narrow only for a while: what fills it may wait for tasks that have
// no room in it.
func TestWindowWhenNoAnswersCome(t *testing.T) {
	a := admitted()
	now := core.Instant(0).Add(lateAfter)
	a.cycle(now, 0, 100, 40)
	for range 40 { // ten seconds
		now = now.Add(lateAfter)
		a.cycle(now, 0, 0, 0)
		a.use()
	}
	if got := a.Window(); got < 2*300 {
		t.Errorf("the window is %d, was %d: it was not widened though nothing has been late for ten seconds", got, 2*160)
	}
}

// TestWindowOfASmallMachine: while most answers are late the window has no floor but a 256th of the ceiling, which a slow cycle does
// not widen, and from there it grows little by little.
func TestWindowOfASmallMachine(t *testing.T) {
	a := admitted()
	late := core.Instant(0)
	for _, want := range []int{2 * 80, 2 * 40, 2 * 20, 2 * 10, 2 * 10} {
		late = late.Add(lateAfter)
		a.cycle(late, 0, 100, 60)
		if got := a.Window(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
		a.use()
	}
	if !a.Overloaded() {
		t.Error("a full window below its floor is no overload")
	}
	a.cycle(late.Add(testTarget), testTarget+1, 0, 0)
	if got := a.Window(); got != 2*10 {
		t.Errorf("after a slow cycle %d", got)
	}
	now := late.Add(time.Second)
	a.cycle(now, 0, 100, 0) // they are in time again
	for want := 11; want <= 32; want++ {
		if got := a.Window(); got != 2*want {
			t.Fatalf("%d, want %d", got, 2*want)
		}
		a.use()
		now = now.Add(widenEvery)
		a.cycle(now, 0, 0, 0)
	}
	if got := a.Window(); got != 2*34 { // a 16th of 32
		t.Errorf("%d, want 68", got)
	}
}

// TestAgentsUsualTime: an answer is late by what its agent takes when nothing is in the way, which is forgotten slowly.
func TestAgentsUsualTime(t *testing.T) {
	a := &agentCalls{}
	now := core.Instant(0).Add(time.Hour)
	says := func(took time.Duration, after time.Duration) bool {
		now = now.Add(after)
		return a.answered(took, true, now)
	}
	for range usualOf {
		if says(10*time.Second, 0) {
			t.Fatal("an agent of which nothing is known is late")
		}
	}
	if says(10*time.Second+lateAfter/2, time.Second) || says(14*time.Second, time.Second) {
		t.Error("an agent that is always slow is late")
	}
	for range 2 * usualOf {
		says(10*time.Millisecond, 0)
	}
	if !says(lateAfter+20*time.Millisecond, time.Second) {
		t.Error("half a second of an agent that takes 10 ms is not late")
	}
	if late := a.answered(lateAfter+20*time.Millisecond, false, now); !late || a.usual > 11*time.Millisecond {
		t.Errorf("it took as long at least: late %t, and usually %v", late, a.usual)
	}
	if says(10*time.Millisecond, -time.Hour); a.usual < 10*time.Millisecond {
		t.Errorf("after the clock was set back it usually takes %v", a.usual)
	}
	if says(2*time.Second, time.Hour); a.usual < 300*time.Millisecond {
		t.Errorf("after an hour without a quick answer it usually takes %v", a.usual)
	}
}

// TestAnswersThatVary: what some calls of an agent take less than others, or is refused at once, does not make the others late,
// and the window opens.
func TestAnswersThatVary(t *testing.T) {
	a, w, draw := &agentCalls{}, admitted(), rand.New(rand.NewPCG(1, 2))
	now := core.Instant(0).Add(time.Hour)
	for range 10 * 60 { // a minute
		late := 0
		for range 20 {
			took := 300*time.Millisecond + time.Duration(draw.Int64N(int64(1200*time.Millisecond)))
			if draw.IntN(10) == 0 {
				took = 10 * time.Millisecond
			}
			if a.answered(took, true, now) {
				late++
			}
		}
		now = now.Add(100 * time.Millisecond)
		w.cycle(now, 0, 20, late)
		w.use()
	}
	if got := w.Window(); got < 2*2000 {
		t.Errorf("the window is %d, began at %d: answers in 10 ms to 1.5 s, as always, are taken for late", got, 2*160)
	}
}

// A small ceiling has a floor and a step all the same.
func TestAdmissionOfOne(t *testing.T) {
	a := NewAdmission(3, testTarget)
	a.own(1)
	for i, want := range []int{1, 2, 3, 3} {
		if got := a.Window(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
		a.use()
		a.cycle(at(i+1), 0, 0, 0)
	}
}

// Overloaded is a full window at its floor, and nothing else.
func TestOverloaded(t *testing.T) {
	a := NewAdmission(2560, testTarget)
	if a.Overloaded() {
		t.Error("a node without partitions is overloaded")
	}
	a.own(1)
	a.charge(159)
	if a.Overloaded() || !a.Room() {
		t.Error("overloaded with room for one")
	}
	a.charge(1)
	if !a.Overloaded() || a.Room() {
		t.Error("not overloaded at the floor")
	}
	a.cycle(at(1), 0, 0, 0)
	if a.Overloaded() {
		t.Error("overloaded although cycles are good")
	}
}

// A negative target leaves the window at its ceiling.
func TestAdmissionWithoutATarget(t *testing.T) {
	a := NewAdmission(2560, -1)
	a.own(1)
	a.charge(2560)
	a.cycle(1, time.Hour, 0, 0)
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
		a.cycle(at(1), 0, 0, 0) // wider
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

// TestReadersTakeTurns: where partitions wait for room, the message that was stored first has it, whichever reader comes
// first and whichever shard has the partition; one that is not read any more keeps no other waiting.
func TestReadersTakeTurns(t *testing.T) {
	for _, shards := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			a := NewAdmission(16, testTarget)
			a.own(3)
			var in []*Inbox
			for range shards {
				in = append(in, newInbox(func() core.Instant { return 77 }, nil, a))
			}
			a.charge(a.Window())
			var order []int
			var mu sync.Mutex
			for p, stored := range []core.Instant{30, 10, 20} {
				in := in[p%shards]
				in.openGate(p, 16)
				m := message(p, 1, 1)
				m.Stored = stored
				go func() {
					if in.Tasks(m) {
						mu.Lock()
						defer mu.Unlock()
						order = append(order, p)
					}
				}()
				synctest.Wait()
			}
			for _, want := range [][]int{{1}, {1, 0}} {
				a.charge(-1)
				synctest.Wait()
				if !slices.Equal(order, want) {
					t.Fatalf("%d shards: partitions %v have had their turn, want %v", shards, order, want)
				}
				in[2%shards].closeGate(2) // it waited next
				synctest.Wait()
			}
			in[0].closeGate(0)
			in[1%shards].closeGate(1)
			if slices.ContainsFunc(a.oldest, func(at core.Instant) bool { return at != 0 }) {
				t.Errorf("%d shards: %v wait, and no partition is read", shards, a.oldest)
			}
		})
	}
}

// TestTurnOfAFullPartition: whoever waits behind a partition's message goes on when that partition has enough in flight, or is
// not read any more, also where another shard has it.
func TestTurnOfAFullPartition(t *testing.T) {
	for _, shards := range []int{1, 2} {
		for what, gone := range map[string]func(*Inbox){"full": func(in *Inbox) { in.setRoom(1, 0) }, "closed": func(in *Inbox) { in.closeGate(1) }} {
			synctest.Test(t, func(t *testing.T) {
				a := NewAdmission(16, testTarget)
				a.own(2)
				in := newInbox(func() core.Instant { return 77 }, nil, a)
				other := in
				if shards == 2 {
					other = newInbox(func() core.Instant { return 77 }, nil, a)
				}
				in.openGate(0, 16)
				other.openGate(1, 16)
				other.gates[1].head = 10 // its reader is about to wake up
				other.noteOldest()
				took := false
				go func() {
					m := message(0, 1, 1)
					m.Stored = 20
					took = in.Tasks(m)
				}()
				synctest.Wait()
				if took {
					t.Fatalf("%d shards: it is another's turn", shards)
				}
				gone(other)
				synctest.Wait()
				if !took {
					t.Errorf("%d shards: it waits behind a partition that is %s", shards, what)
				}
				in.closeGate(0)
				other.closeGate(1)
			})
		}
	}
}

// TestRoomForParkedTasks: parked tasks have room until the window is full twice, and when there is some again a cycle of the
// shard that waits for it is due, whoever gave it.
func TestRoomForParkedTasks(t *testing.T) {
	a := NewAdmission(4, -1)
	in := newInbox(func() core.Instant { return 77 }, nil, a)
	a.own(1)
	a.charge(7)
	if a.Room() || a.TakesUp() != 1 {
		t.Fatalf("full: room %v, and for %d parked ones", a.Room(), a.TakesUp())
	}
	a.charge(1)
	in.awaitRoom(true)
	if a.TakesUp() != 0 || in.isDue() {
		t.Fatalf("full twice: room for %d parked ones, a cycle is due: %v", a.TakesUp(), in.isDue())
	}
	a.charge(-1)
	if !in.isDue() {
		t.Error("there is room, and the shard does not know")
	}
	in.take()
	in.awaitRoom(false)
	a.charge(1)
	a.charge(-1)
	if in.isDue() {
		t.Error("nothing waits")
	}
	in.awaitRoom(true) // since the shard looked there is room
	if !in.isDue() {
		t.Error("room that came in between is missed")
	}
	if none := (*Admission)(nil).TakesUp(); none < 1<<30 {
		t.Errorf("without a window %d", none)
	}
}

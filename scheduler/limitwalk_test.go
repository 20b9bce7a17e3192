package scheduler_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// limitWalk is four nodes that work, claim, stand still and take partitions from each other as chance has it, also while a
// claim is under way.
type limitWalk struct {
	*limitRig
	rand   *rand.Rand
	most   int
	calm   int          // takeovers are so rare
	still  map[int]bool // nodes that stand still
	claims map[int]bool // nodes whose turn is under way
	atWork map[doOf]core.Command
	done   map[doOf]int64 // what was answered last
	tasks  int
}

// doOf names a do command of the limited agent.
type doOf struct {
	partition int
	number    int64
}

const walkNodes = 4

func newLimitWalk(t *testing.T, seed uint64) *limitWalk {
	w := &limitWalk{rand: rand.New(rand.NewPCG(seed, 7)), still: map[int]bool{}, claims: map[int]bool{}, atWork: map[doOf]core.Command{}, done: map[doOf]int64{}}
	w.most, w.calm = 2+w.rand.IntN(6), 1+w.rand.IntN(12)
	l := core.Limit{Agent: "agent.a", Concurrent: w.most, Revision: 1}
	if w.rand.IntN(2) == 0 {
		l = perKey("agent.a", w.most, 0)
	}
	w.limitRig = newLimitRig(t, walkNodes, l)
	return w
}

// look takes note of what has left, and of what is over.
func (w *limitWalk) look() {
	for _, c := range w.out {
		if of := (doOf{c.Partition, c.Number}); c.Step == "a" && w.done[of] != c.Seq {
			w.atWork[of] = c
		}
	}
	w.out = nil
	maps.DeleteFunc(w.atWork, func(_ doOf, c core.Command) bool { return c.CompleteBy <= w.now })
}

// step is the next thing that happens; within: while a claim is under way.
func (w *limitWalk) step(within bool) {
	i, p := w.rand.IntN(walkNodes), w.rand.IntN(walkNodes)
	n := w.nodes[i]
	_, owns := n.shard().Owns(p)
	switch k := w.rand.IntN(22); {
	case k == 0 && w.rand.IntN(3) == 0:
		w.still[i] = !w.still[i]
	case k == 1 && w.rand.IntN(3) == 0:
		w.fails = ""
		if w.rand.IntN(3) == 0 {
			w.fails = "agent.a"
		}
	case k < 4:
		w.pass()
	case w.still[i]:
	case k < 10:
		w.work(n)
	case k < 14 && !w.claims[i]:
		w.claim(i, n, within)
	case k == 14 && owns && w.rand.IntN(w.calm) == 0:
		n.shard().Drop(p)
	case k == 15 && !owns && w.rand.IntN(w.calm) < 3:
		w.takeOver(n, p)
	case k == 16 || k == 17:
		w.end()
	case k > 17 && owns:
		w.submitTo(n, p)
	}
	w.look()
}

// pass lets time pass: mostly little, and now and then so much that grants end.
func (w *limitWalk) pass() {
	most := 60 * time.Millisecond
	switch k := w.rand.IntN(90); {
	case k == 0:
		most = time.Minute
	case k < 30:
		most = 1500 * time.Millisecond
	}
	w.now = w.now.Add(time.Duration(w.rand.Int64N(int64(most))))
}

func (w *limitWalk) claim(i int, n *limitNode, within bool) {
	w.claims[i] = true
	defer delete(w.claims, i)
	if !within && w.rand.IntN(3) == 0 {
		w.while = func(int) {
			for range w.rand.IntN(6) {
				w.step(true)
			}
		}
	}
	w.turn(n)
	if !within {
		w.while = nil
	}
}

func (w *limitWalk) takeOver(n *limitNode, p int) {
	w.loads = w.rand.IntN(4) == 0
	if _, err := n.shard().Adopt(w.t.Context(), w.now, p, scheduler.Ground{Stream: "stream-1"}); err != nil && !errors.Is(err, errCut) {
		w.t.Fatal(err)
	}
	w.loads, w.out = false, append(w.out, n.bus.take()...)
}

// end answers some of what is at work; who thinks that the partition is its own hears it.
func (w *limitWalk) end() {
	for _, of := range slices.SortedFunc(maps.Keys(w.atWork), func(a, b doOf) int { return cmp.Or(a.partition-b.partition, cmp.Compare(a.number, b.number)) }) {
		if w.rand.IntN(2) == 0 {
			continue
		}
		c := w.atWork[of]
		for i, n := range w.nodes {
			if _, owns := n.shard().Owns(c.Partition); owns && !w.still[i] {
				n.sched.Committers()[0].Inbox().Reply(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Result: []byte("1")})
			}
		}
		w.done[of] = c.Seq
		delete(w.atWork, of)
	}
}

func (w *limitWalk) submitTo(n *limitNode, p int) {
	in := n.sched.Committers()[0].Inbox()
	in.OpenGate(p, 1000)
	var subs []core.Submission
	for range 1 + w.rand.IntN(5) {
		w.tasks++
		subs = append(subs, core.Submission{Type: "order", ID: fmt.Sprint(w.tasks), CompleteBy: w.now.Add(time.Hour)})
	}
	in.Tasks(scheduler.TaskMail{Partition: p, Pos: uint64(w.tasks), Submissions: subs, Ack: func() {}})
}

// However takeovers, counts and claims fall together, no more commands are at work than the limit has places.
func TestNeverMoreThanTheLimit(t *testing.T) {
	left, full := 0, 0
	for seed := range uint64(3000) {
		w := newLimitWalk(t, seed)
		for range 400 {
			w.step(false)
			switch n := len(w.atWork); {
			case n > w.most:
				t.Fatalf("seed %d: %d commands are at work, the limit is %d", seed, n, w.most)
			case n == w.most:
				full++
			}
		}
		left += len(w.done)
	}
	if left < 1000 || full < 1000 {
		t.Fatalf("%d commands have left, the limit was reached %d times: that says nothing", left, full)
	}
}

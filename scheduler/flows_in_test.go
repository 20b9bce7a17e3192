package scheduler

import (
	"fmt"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestFlowsAreBounded: of more flows than are kept those are forgotten that would come back as they are; one that is
// ahead of the others is not, or it would get more than its part; the rest of a class shares one.
func TestFlowsAreBounded(t *testing.T) {
	var f flows
	of := func(tenant string) *flow { return f.of(flowKey{core.ClassNormal, tenant, "order"}, &Weights{}) }
	number := int64(0)
	put := func(in *flow) {
		number++
		f.push(in, parkedTask{number: number})
	}
	turn := func() *flow {
		in := f.next()
		f.pop(in)
		f.served(in)
		if len(in.tasks) == 0 {
			f.leave(in)
		}
		return in
	}
	busy, ahead := of("busy"), of("ahead")
	for range 10 {
		put(busy)
	}
	put(ahead)
	if first := turn(); first != ahead { // the names decide
		t.Fatalf("the first turn is of %s", first.up.name)
	}
	for i := range 3 * flowsMax { // none of them has a task: they are forgotten
		of(fmt.Sprintf("t%d", i))
	}
	if of("ahead") != ahead || of("busy") != busy {
		t.Error("a flow is forgotten that is ahead, or has work")
	}
	for range 3 {
		turn()
	}
	for i := range 3 * flowsMax {
		put(of(fmt.Sprintf("w%d", i)))
	}
	if of("ahead") == ahead {
		t.Error("a flow is kept although its turn has passed")
	}
	if n := len(f.all); n > flowsMax+core.Classes {
		t.Errorf("%d flows are kept, the limit is %d", n, flowsMax)
	}
	if rest := f.all[flowKey{class: core.ClassNormal}]; rest == nil || len(rest.tasks) < flowsMax {
		t.Error("the flows beyond the limit do not share one")
	}
	for left := f.waiting; left > 0; left-- {
		turn()
	}
	if f.next() != nil || f.busy != 0 {
		t.Errorf("%d flows are busy with nothing", f.busy)
	}
}

// TestHeldLookIsBounded: a look at flows whose tasks are all held ends after as many as it wanted and one of each flow.
func TestHeldLookIsBounded(t *testing.T) {
	at := &parkedAt{known: map[int64]bool{}}
	for i := range int64(400) {
		in := at.fresh.of(flowKey{core.ClassNormal, fmt.Sprintf("t%d", i%2), "order"}, &Weights{})
		at.fresh.push(in, parkedTask{number: i, deadline: 1, latest: 1})
	}
	looked := 0
	if got := at.take(0, 10, func(*planRef) bool { looked++; return true }, &keyTakes{}); len(got) > 0 || looked != 12 || !at.behindBegun {
		t.Errorf("%d taken, %d looked at, held %v, want 12 looked at", len(got), looked, at.behindBegun)
	}
	if at.fresh.waiting != 400 || at.fresh.busy != 2 {
		t.Errorf("%d wait in %d flows afterwards", at.fresh.waiting, at.fresh.busy)
	}
}

package shop

import (
	"strconv"
	"testing"
	"time"

	"duly.dev/duly/dulytest"
)

// TestShares: among many orders every trouble of the package comment is there, in about its share.
func TestShares(t *testing.T) {
	counts := map[string]int{}
	const orders = 20_000
	for i := range orders {
		id := "order-" + string(rune('a'+i%26)) + "-" + strconv.Itoa(i)
		switch n := share(id); {
		case n < 4:
			counts["stock"]++
		case n < 7:
			counts["card"]++
		case n < 11:
			counts["gateway"]++
		case n < 13:
			counts["address"]++
			if OrderNumber(id).Address != noAddress {
				t.Errorf("order %s has a known address", id)
			}
		case n == 13:
			counts["undo"]++
		}
	}
	for trouble, percent := range map[string]int{"stock": 4, "card": 3, "gateway": 4, "address": 2, "undo": 1} {
		if got := counts[trouble] * 100 / orders; got < percent-1 || got > percent+1 {
			t.Errorf("trouble %s meets %d of %d orders, want about %d %%", trouble, counts[trouble], orders, percent)
		}
	}
}

// TestReturns: a return waits for its parcel, has each item inspected, and is paid back once a person has approved it; a
// cheap one waits for no answer.
func TestReturns(t *testing.T) {
	s := New()
	engine := dulytest.NewEngine(t)
	engine.Apply(s.Inspected)
	engine.On(s.inspect).Answer(Inspected{Grade: "as new"})
	engine.On(s.refund).Answer(Charged{Payment: "b"})
	dear := dulytest.Submit(engine, s.Returns, "return-0", ReturnNumber(0))
	cheap := dulytest.Submit(engine, s.Returns, "return-2", ReturnNumber(2))
	engine.Run()
	if dear.State() != "pending" || dear.Step(s.approve) != "running" || cheap.State() != "processed" || cheap.Step(s.approve) != "skipped" {
		t.Fatalf("dear: %s, approve %s; cheap: %s, approve %s", dear.State(), dear.Step(s.approve), cheap.State(), cheap.Step(s.approve))
	}
	if waited := engine.Now().Sub(dear.Deadline().Add(-24 * time.Hour)); waited < 5*time.Second {
		t.Errorf("the parcels were waited for %v", waited)
	}
	if err := dulytest.Signal(engine, s.Returns, "return-0", s.approve.Answer(Approval{By: "olga"}).To(dear.Ask(s.approve))); err != nil {
		t.Fatal(err)
	}
	engine.Run()
	if dear.State() != "processed" {
		t.Errorf("approved: %s", dear.State())
	}
}

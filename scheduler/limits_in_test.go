package scheduler

import (
	"testing"

	"duly.dev/duly/internal/core"
)

// TestForgottenKeyHoldsNoPlace: a key that a shard has forgotten and needs again knows of no grant. The node does not take that
// for a grant on its way, which would keep the place from all others for as long as a retry asks for it.
func TestForgottenKeyHoldsNoPlace(t *testing.T) {
	b := newLimits(1)
	b.known["bank"] = core.Limit{Agent: "bank", Key: "input", KeyConcurrent: 1, Revision: 1}
	of := limitOf{agent: "bank", keyed: true, key: "k"}
	h := b.of(grantKey{0, of})
	h.seq, h.claimed, h.sent = 7, 1, core.Grant{Keyed: true, Key: "k", Wanted: 1, Places: 1}
	if places, _ := h.floor(); places != 1 {
		t.Fatalf("a grant on its way: %d places may be in use, want 1", places)
	}
	h.update(limitUse{of: of, seq: 7, wanted: 1}, false) // it came down to its fair share at once, and was forgotten
	h.update(limitUse{of: of, wanted: 1}, false)
	if places, _ := h.floor(); places != 0 {
		t.Errorf("%d places may be in use, want 0", places)
	}
	if due := b.due(2); len(due) != 1 {
		t.Errorf("%d grants are to be given back, want 1", len(due))
	}
	h.update(limitUse{of: of, wanted: 1}, true)
	if h.seq != 0 || h.use.seq != 0 {
		t.Errorf("in a new term it waits for grant %d, and has heard of %d", h.seq, h.use.seq)
	}
}

// TestReadyKeyIsNotForgotten: a key of which nothing is out and nothing waits in memory is kept until the round that lets tasks come
// back which stand aside for it, in the store alone perhaps: without the key that round would not look for them.
func TestReadyKeyIsNotForgotten(t *testing.T) {
	g := newGate(&Config{Now: func() core.Instant { return 1 }})
	g.agents.limited = map[string]core.Limit{"bank": {Agent: "bank", Key: "input", KeyConcurrent: 1, Revision: 1}}
	a := g.agents.of("bank")
	k := a.key("k")
	k.out = 1
	k.end()
	g.limitUses(nil, func(limitUse) {})
	if a.keys["k"] != k {
		t.Fatal("it is forgotten before what stands aside for it could come back")
	}
	k.nextRound = waker{}
	k.report()
	g.limitUses(nil, func(limitUse) {})
	if a.keys["k"] != nil {
		t.Error("it is kept though nothing is out, waits or comes back")
	}
}

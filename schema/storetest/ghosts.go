package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// ghost is one of an undone task that its owner could undo.
func ghost(key string) operate.Ghost {
	return operate.Ghost{Kind: operate.GhostOfUndone, Agent: "payment.charge", Key: key, Task: "t1-1", Type: "order", Step: "charge", State: core.StateUndone, Seq: 7, Times: 1,
		Made: start.Time(), Text: "the effect stands", Status: operate.GhostOpen, Repairs: operate.RepairsOf(true)}
}

// testBooks: a result replaces the one before with its ghosts, unless it is older. What was decided about a ghost stands;
// one that was found again after an undo was asked for is open again; an accepted one stays until it is another.
func testBooks(r *rig) {
	if _, err := r.s.LastBooks(r.ctx); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("before any: %v", err)
	}
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute).Time() }
	result := func(minutes int, total int64) operate.BooksResult {
		return operate.BooksResult{Since: at(-60), Begun: at(minutes), At: at(minutes + 1), Agents: []operate.AgentBooks{{Agent: "payment.charge", Effects: 3}}, Effects: 3, Total: total,
			Kinds: map[operate.GhostKind]int64{operate.GhostOfUndone: total}, Answers: "a1"}
	}
	a, b := ghost("t1-1/charge/0"), ghost("t1-2/charge/0")
	b.Made, b.State, b.Seq, b.Repairs, b.Kind = time.Time{}, "", 0, operate.RepairsOf(false), operate.GhostUnknown
	r.must(r.s.PutBooks(r.ctx, result(0, 2), []operate.Ghost{b, a, ghost(b.Key)})) // one was on two pages
	r.equal("result", get(r.s.LastBooks(r.ctx))(r), result(0, 2))
	a.Found, b.Found = at(1), at(1)
	r.equal("ghosts", r.haunted(), []operate.Ghost{a, b})
	r.equal("one", get(r.s.Ghost(r.ctx, a.Agent, a.Key))(r), a)
	if _, err := r.s.Ghost(r.ctx, a.Agent, "t1-9/charge/0"); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("a ghost that is not there: %v", err)
	}
	// An undo is asked of one, the other is accepted.
	a.Status, a.Repair, a.By, a.Decided, a.Reason, a.Audit = operate.GhostAsked, operate.RepairUndo, "olga", at(5), "the customer \x00 complained", 12
	b.Status, b.Repair, b.By, b.Decided, b.Reason, b.Audit = operate.GhostAccepted, operate.RepairAccept, "olga", at(5), "paid back", 13
	r.must(r.s.DecideGhost(r.ctx, a))
	r.must(r.s.DecideGhost(r.ctx, b))
	a.Reason = strings.ReplaceAll(a.Reason, "\x00", "\uFFFD")
	r.equal("decided", r.haunted(), []operate.Ghost{a, b})
	r.equal("accepted", r.haunted(operate.GhostAccepted), []operate.Ghost{b})
	if err := r.s.DecideGhost(r.ctx, ghost("t1-9/charge/0")); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("deciding about a ghost that is not there: %v", err)
	}
	// A comparison that had begun before finds both: what was decided meanwhile stands.
	early := []operate.Ghost{ghost(a.Key), ghost(b.Key)}
	early[1].Kind, early[1].Made, early[1].State, early[1].Seq, early[1].Repairs = b.Kind, b.Made, b.State, b.Seq, b.Repairs
	r.must(r.s.PutBooks(r.ctx, result(4, 2), early))
	r.equal("decided meanwhile", r.haunted(), []operate.Ghost{a, b})
	// One that begins after finds the first again: the undo has not helped.
	r.must(r.s.PutBooks(r.ctx, result(10, 1), early[:1]))
	a.Status, a.Again = operate.GhostOpen, true
	r.equal("found again", r.haunted(), []operate.Ghost{a, b})
	// An older result changes nothing.
	r.must(r.s.PutBooks(r.ctx, result(3, 0), nil))
	r.equal("after an older one", r.haunted(), []operate.Ghost{a, b})
	r.equal("the newest", get(r.s.LastBooks(r.ctx))(r).Begun, at(10))
	// What is not found any more is gone; what was accepted and is another now is open.
	other := ghost(b.Key)
	other.Kind, other.Times = operate.GhostDoubled, 2
	r.must(r.s.PutBooks(r.ctx, result(20, 1), []operate.Ghost{other}))
	other.Found = at(21)
	r.equal("another", r.haunted(), []operate.Ghost{other})
	// An accepted one is forgotten in the end.
	other.Status, other.Decided = operate.GhostAccepted, at(22)
	r.must(r.s.DecideGhost(r.ctx, other))
	r.must(r.s.PutBooks(r.ctx, result(30, 0), nil))
	r.equal("remembered", len(r.haunted()), 1)
	r.must(r.s.PutBooks(r.ctx, result(30+int(operate.GhostAcceptedFor/time.Minute), 0), nil))
	r.equal("forgotten", len(r.haunted()), 0)
	if err := r.s.PutBooks(r.ctx, result(1<<30, 0), make([]operate.Ghost, operate.GhostsMax+1)); err == nil {
		r.Error("more ghosts than there may be were stored")
	}
	r.write(births(1, 2)...)
	r.equal("rows with journals by id", len(get(r.s.SavedIDs(r.ctx, 1, []string{"t1-1", "t1-9"}))(r)), 1)
}

// haunted are all ghosts of some statuses.
func (r *rig) haunted(statuses ...operate.GhostStatus) []operate.Ghost {
	r.Helper()
	ghosts, next, err := r.s.Ghosts(r.ctx, statuses, operate.ListMax, "")
	r.must(err)
	r.equal("next", next, "")
	return ghosts
}

// testGhostPages: each of many ghosts is seen once, page by page.
func testGhostPages(r *rig) {
	var all []operate.Ghost
	for i := range 25 {
		g := ghost(fmt.Sprintf("t-%02d/charge/0", i))
		g.Agent = []string{"payment.charge", "courier.book", "warehouse.reserve"}[i%3]
		all = append(all, g)
	}
	r.must(r.s.PutBooks(r.ctx, operate.BooksResult{At: start.Time(), Begun: start.Time()}, all))
	seen := map[string]int{}
	for after, pages := "", 0; pages < 10; pages++ {
		page, next, err := r.s.Ghosts(r.ctx, []operate.GhostStatus{operate.GhostOpen, operate.GhostAsked}, 7, after)
		r.must(err)
		for _, g := range page {
			seen[g.Agent+" "+g.Key]++
		}
		if after = next; next == "" {
			r.equal("pages", pages, 3)
			break
		}
	}
	r.equal("ghosts", len(seen), 25)
	for key, n := range seen {
		if n != 1 {
			r.Errorf("%s was seen %d times", key, n)
		}
	}
	if _, _, err := r.s.Ghosts(r.ctx, nil, 0, ""); err == nil {
		r.Error("a page without rows was given")
	}
	if _, _, err := r.s.Ghosts(r.ctx, nil, 1, "nonsense"); !errors.Is(err, core.ErrCursor) {
		r.Errorf("a cursor that is none: %v", err)
	}
}

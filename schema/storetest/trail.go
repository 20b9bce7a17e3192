package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

func entry(i int) operate.AuditEntry {
	return operate.AuditEntry{
		At: start.Add(time.Duration(i) * time.Second).Time(), Actor: []string{"olga", "ivan"}[i%2], Role: operate.RoleOperator, From: "10.0.0.7", Via: "http",
		Action: []string{"undo", "resubmit", "token.create"}[i%3], Target: fmt.Sprintf("task/order/%d", i), Reason: "because", Outcome: "asked", Request: fmt.Sprint("r", i),
	}
}

// audit reads the whole trail that a filter selects, in pages.
func (r *rig) audit(f operate.AuditFilter) []operate.AuditEntry {
	r.Helper()
	var all []operate.AuditEntry
	for range 1000 {
		page := get(r.s.Audit(r.ctx, f))(r)
		if len(page.Entries) > f.Limit {
			r.Fatalf("%d entries, limit %d", len(page.Entries), f.Limit)
		}
		all = append(all, page.Entries...)
		if page.Next == "" {
			return all
		}
		f.After = page.Next
	}
	r.Fatal("the trail does not end")
	return nil
}

// testTrail: entries have rising numbers, a key is used once, an outcome is added once, and nothing
// else changes an entry.
func testTrail(r *rig) {
	r.equal("nothing yet", len(r.audit(operate.AuditFilter{Limit: 5})), 0)
	var want []operate.AuditEntry
	for i := range 5 {
		e := entry(i)
		if i == 3 {
			e.Key, e.Before, e.After, e.Outcome = "key-3", []byte(`{"a": 1}`), []byte(`{"b":18446744073709551616}`), "refused: no"
		}
		number, again, err := r.s.Append(r.ctx, e)
		r.must(err)
		if again != nil || i > 0 && number <= want[0].Number {
			r.Fatalf("number %d after %d, again %v", number, want[0].Number, again)
		}
		e.Number = number
		want = append([]operate.AuditEntry{e}, want...)
	}
	r.equal("the trail", r.audit(operate.AuditFilter{Limit: 2}), want)
	other := entry(9)
	other.Key = "key-3"
	number, again, err := r.s.Append(r.ctx, other)
	r.must(err)
	if again == nil || number != again.Number {
		r.Fatalf("number %d, again %v", number, again)
	}
	r.equal("the entry that has the key", *again, want[1])
	r.must(r.s.SetOutcome(r.ctx, want[0].Number, "asked: 3.7"))
	want[0].Outcome = "asked: 3.7"
	unsettled := append(slices.Clone(want[2:]), want[0])
	slices.SortFunc(unsettled, func(a, b operate.AuditEntry) int { return int(a.Number - b.Number) })
	r.equal("without an outcome", get(r.s.Unsettled(r.ctx, 0, 10))(r), unsettled)
	r.equal("the next of them", get(r.s.Unsettled(r.ctx, unsettled[0].Number, 2))(r), unsettled[1:3])
	r.must(r.s.SetOutcome(r.ctx, want[0].Number, "done"))
	r.must(r.s.SetOutcome(r.ctx, want[0].Number, "done"))
	for _, other := range []string{"failed: no", "asked: 3.8"} {
		if err := r.s.SetOutcome(r.ctx, want[0].Number, other); !errors.Is(err, operate.Settled("done")) {
			r.Errorf("an outcome was changed to %s: %v", other, err)
		}
	}
	r.equal("the others", get(r.s.Unsettled(r.ctx, 0, 10))(r), unsettled[:3])
	if err := r.s.SetOutcome(r.ctx, 999, "done"); !errors.Is(err, core.ErrNotFound) {
		r.Errorf("outcome of an entry that is not there: %v", err)
	}
	want[0].Outcome = "done"
	r.equal("the trail afterwards", r.audit(operate.AuditFilter{Limit: 100}), want)
}

// testForgetAudit: old entries go, the oldest first and so many at a time; the others stay as they are, and no number is
// given again.
func testForgetAudit(r *rig) {
	for i := range 10 {
		e := entry(i)
		e.Key = fmt.Sprint("key-", i)
		if _, _, err := r.s.Append(r.ctx, e); err != nil {
			r.Fatal(err)
		}
	}
	before := r.audit(operate.AuditFilter{Limit: 100})
	at := start.Add(6 * time.Second) // six are older
	for _, want := range []int{4, 2, 0} {
		r.equal("forgotten", get(r.s.ForgetAudit(r.ctx, at, 4))(r), want)
	}
	r.equal("what stays", r.audit(operate.AuditFilter{Limit: 100}), before[:4])
	r.equal("by target", r.audit(operate.AuditFilter{Limit: 100, Target: "task/order/7"}), before[2:3])
	r.equal("all of them", get(r.s.ForgetAudit(r.ctx, start.Add(time.Hour), 100))(r), 4)
	r.equal("nothing is left", len(r.audit(operate.AuditFilter{Limit: 100})), 0)
	e := entry(11)
	e.Key = "key-3" // of an entry that is forgotten
	if n, again, err := r.s.Append(r.ctx, e); err != nil || again != nil || n <= before[0].Number {
		r.Errorf("the next entry is number %d after %d, again %v, %v", n, before[0].Number, again, err)
	}
}

func testTrailFilters(r *rig) {
	const n = 30
	var all []operate.AuditEntry
	for i := range n {
		e := entry(i)
		var err error
		if e.Number, _, err = r.s.Append(r.ctx, e); err != nil {
			r.Fatal(err)
		}
		all = append([]operate.AuditEntry{e}, all...)
	}
	for _, c := range []struct {
		f    operate.AuditFilter
		want int
	}{
		{operate.AuditFilter{}, n},
		{operate.AuditFilter{Actor: "olga"}, 15},
		{operate.AuditFilter{Action: "undo"}, 10},
		{operate.AuditFilter{Action: "undo", Actor: "ivan"}, 5},
		{operate.AuditFilter{Target: "task/order/1"}, 11},
		{operate.AuditFilter{Target: "task/order/1", Whole: true}, 1},
		{operate.AuditFilter{Target: "task/order/", Whole: true}, 0},
		{operate.AuditFilter{Target: "task/order/17"}, 1},
		{operate.AuditFilter{Target: "task/"}, n},
		{operate.AuditFilter{Target: "operation/"}, 0},
		{operate.AuditFilter{Target: "task/order/1", Actor: "olga"}, 5},
		{operate.AuditFilter{From: start.Add(10 * time.Second).Time()}, 20},
		{operate.AuditFilter{To: start.Add(10 * time.Second).Time()}, 10},
		{operate.AuditFilter{From: start.Add(10 * time.Second).Time(), To: start.Add(12 * time.Second).Time()}, 2},
		{operate.AuditFilter{From: start.Add(100 * time.Hour).Time()}, 0},
		{operate.AuditFilter{To: start.Add(-100 * time.Hour).Time()}, 0},
		{operate.AuditFilter{From: start.Add(10 * time.Second).Time(), Action: "undo"}, 6},
	} {
		for _, limit := range []int{1, 4, 1000} {
			c.f.Limit = limit
			got := r.audit(c.f)
			r.equal(fmt.Sprintf("entries of %+v", c.f), len(got), c.want)
			for i := range got {
				at := slices.IndexFunc(all, func(e operate.AuditEntry) bool { return e.Number == got[i].Number })
				r.equal("entry", got[i], all[at])
				if i > 0 && got[i].Number >= got[i-1].Number {
					r.Fatalf("%d after %d", got[i].Number, got[i-1].Number)
				}
			}
		}
	}
	for _, f := range []operate.AuditFilter{{}, {Limit: operate.ListMax + 1}, {Limit: 1, After: "nonsense"}, {Limit: 1, After: "-1"}} {
		if _, err := r.s.Audit(r.ctx, f); err == nil {
			r.Errorf("filter %+v was taken", f)
		}
	}
	r.longTrail(all)
}

// longTrail has so many entries that no call looks at all of them.
func (r *rig) longTrail(all []operate.AuditEntry) {
	r.Helper()
	if r.db == nil {
		return
	}
	const n = 50_000
	at, rows := `'2030-01-01 00:01:00+00'::TIMESTAMPTZ + i * INTERVAL '1 second'`, fmt.Sprintf(`generate_series(1000, %d) AS n(i)`, 1000+n)
	target := `convert_to('agent/' || i, 'UTF8')`
	if r.s.Dialect() == "sqlite" {
		at, target = fmt.Sprintf(`%d + i * 1000000`, start.Add(time.Minute)), `CAST('agent/' || i AS BLOB)`
		rows = fmt.Sprintf(`(WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n)`, 1000+n)
	}
	get(r.db.ExecContext(r.ctx, `INSERT INTO audit (number, at, actor, role, from_addr, via, action, target, reason, outcome, request_id)
		SELECT i, `+at+`, 'robot', 'operator', '', 'http', 'extend', `+target+`, '', 'done', '' FROM `+rows))(r)
	for _, c := range []struct {
		f       operate.AuditFilter
		want    int
		atOnce  bool
		because string
	}{
		{operate.AuditFilter{Limit: 100, Target: "task/order/17"}, 1, true, "a target has few entries"},
		{operate.AuditFilter{Limit: 100, Target: "task/order/1", Whole: true}, 1, true, "a target has few entries"},
		{operate.AuditFilter{Limit: 100, Actor: "olga"}, 15, true, "an actor has an index"},
		{operate.AuditFilter{Limit: 100, Action: "undo"}, 10, true, "an action has an index"},
		{operate.AuditFilter{Limit: 100, To: start.Add(20 * time.Second).Time()}, 20, true, "the range ends far below"},
		{operate.AuditFilter{Limit: 100, Action: "undo", Actor: "ivan"}, 5, false, "of both it is walked"},
	} {
		r.equal(fmt.Sprintf("entries of %+v", c.f), len(r.audit(c.f)), c.want)
		page := get(r.s.Audit(r.ctx, c.f))(r)
		if (len(page.Entries) == c.want) != c.atOnce || c.atOnce == (page.Next != "") {
			r.Errorf("%+v: %d entries at first, next %q, although %s", c.f, len(page.Entries), page.Next, c.because)
		}
	}
	r.equal("all", len(r.audit(operate.AuditFilter{Limit: 1000})), n+1+len(all))
}

// testOutcomeOfAChange: a change that is made is done in the trail, whatever its maker hears of it; one whose entry has another
// outcome by then is not made.
func testOutcomeOfAChange(r *rig) {
	desk := operate.NewDesk(r.s, start.Time, slog.New(slog.DiscardHandler))
	lost := errors.New("the answer is lost")
	pause, limit := operate.Pause{ID: "p", Agent: "ship", At: start.Time(), By: "olga", Reason: "strike"}, operate.AgentLimit{Limit: core.Limit{Agent: "pay", Concurrent: 3, Revision: 1}, At: start.Time(), By: "olga", Reason: "slow"}
	token := operate.Token{ID: "t", Name: "shop", Role: operate.RoleClient, Hash: []byte("h"), Created: start.Time(), By: "olga"}
	put := func(_ bool, err error) error { return err }
	cut, want := false, map[string]bool{} // a store through faults need not make a change, and then those that rest on it
	for i, change := range []func(context.Context) error{
		func(ctx context.Context) error { return r.s.PutPause(ctx, pause) },
		func(ctx context.Context) error { return r.s.DeletePause(ctx, "p") },
		func(ctx context.Context) error { return put(r.s.PutLimit(ctx, limit)) },
		func(ctx context.Context) error { return r.s.DeleteLimit(ctx, "pay") },
		func(ctx context.Context) error {
			return put(r.s.PutBreaker(ctx, core.Breaker{Agent: "pay", State: core.BreakerOpen, Since: start, Revision: 1}))
		},
		func(ctx context.Context) error { return r.s.PutToken(ctx, token) },
		func(ctx context.Context) error { return r.s.RevokeToken(ctx, "t", start.Time()) },
		func(ctx context.Context) error { return r.s.PutSetting(ctx, "view/a", []byte(`{}`)) },
		func(ctx context.Context) error { return r.s.DeleteSetting(ctx, "view/a") },
	} {
		act := operate.Act{Action: "change", Target: fmt.Sprint("change/", i)}
		err := desk.Change(r.ctx, &act, func(ctx context.Context) error {
			made := change(ctx)
			cut = cut || made != nil
			return errors.Join(made, lost)
		})
		if err != nil && !cut {
			r.Errorf("change %d: %v", i, err)
		}
		want[act.Target] = err == nil
		act = operate.Act{Action: "change", Target: fmt.Sprint("late/", i)}
		err = desk.Change(r.ctx, &act, func(ctx context.Context) error {
			r.must(r.s.SetOutcome(r.ctx, act.Number, operate.NotMade))
			return r.s.PutPause(ctx, operate.Pause{ID: fmt.Sprint("late", i), Agent: "ship", At: start.Time()})
		})
		if !errors.Is(err, operate.Settled(operate.NotMade)) {
			r.Errorf("a change of an entry that was settled: %v", err)
		}
	}
	act := operate.Act{Action: "change", Target: "nothing"}
	if err := desk.Change(r.ctx, &act, func(ctx context.Context) error { return errors.Join(r.s.DeletePause(ctx, "none"), lost) }); !errors.Is(err, lost) {
		r.Errorf("nothing was changed: %v", err)
	}
	r.equal("pauses", len(get(r.s.Pauses(r.ctx))(r)), 0)
	for _, e := range r.audit(operate.AuditFilter{Limit: 100}) {
		late := strings.HasPrefix(e.Target, "late/")
		if late && e.Outcome != operate.NotMade || !late && want[e.Target] != (e.Outcome == operate.WasMade) {
			r.Errorf("%s: %s, and it was told that it is in force: %v", e.Target, e.Outcome, want[e.Target])
		}
	}
}

// testTrailKeyAtOnce: of many that use one key at once, one is carried out.
func testTrailKeyAtOnce(r *rig) {
	const n = 8
	type answer struct {
		number int64
		again  bool
		err    error
	}
	answers := make(chan answer, n)
	for i := range n {
		go func() {
			e := entry(i)
			e.Key = "key"
			number, again, err := r.s.Append(r.ctx, e)
			answers <- answer{number, again != nil, err}
		}()
	}
	first, number := 0, int64(0)
	for range n {
		a := <-answers
		r.must(a.err)
		if !a.again {
			first++
		}
		if number == 0 {
			number = a.number
		}
		r.equal("number", a.number, number)
	}
	r.equal("carried out", first, 1)
	r.equal("entries", len(r.audit(operate.AuditFilter{Limit: 100})), 1)
}

package core

import (
	"strings"
	"testing"
	"time"
)

var breakerPolicy = BreakerPolicy{SharePct: 50, CallsMin: 10, Window: 10 * time.Second, OpenFor: time.Second, OpenMax: 6 * time.Second}

// A breaker opens at the share and the number of calls, not below, and is in trial when its time is over.
func TestBreakerOpens(t *testing.T) {
	now := birthTime
	for _, c := range []struct {
		done, failed int64
		opens        bool
	}{{0, 9, false}, {6, 5, false}, {5, 5, true}, {0, 10, true}, {1000, 999, false}, {10, 0, false}} {
		b, changed := Breaker{Agent: "pay"}.Next(&breakerPolicy, now, Calls{c.done, c.failed}, Calls{})
		if changed != c.opens || c.opens != (b.State == BreakerOpen) {
			t.Errorf("%d done, %d failed: %+v, changed %v", c.done, c.failed, b, changed)
		}
		if !c.opens {
			continue
		}
		if b.Until != now.Add(time.Second) || b.Openings != 1 || b.Revision != 1 || b.Limit(now) != 0 || b.Back(now) != b.Until {
			t.Errorf("opened: %+v", b)
		}
		if state, stage := b.At(b.Until); state != BreakerTrial || stage != 0 || b.Limit(b.Until) != 1 || b.Back(b.Until) != 0 {
			t.Errorf("at its end: %s, stage %d, limit %d", state, stage, b.Limit(b.Until))
		}
	}
	off := breakerPolicy
	off.SharePct = 0
	if _, changed := (Breaker{}).Next(&off, now, Calls{0, 1000}, Calls{}); changed {
		t.Error("it opens though it is off")
	}
}

// However often it opened, and however long it may be open, it is open for no less than before.
//
// covers: inv12
func TestBreakerOpensForADay(t *testing.T) {
	p := breakerPolicy
	for _, p.OpenFor = range []time.Duration{time.Second, 5 * time.Hour, 24 * time.Hour} {
		p.OpenMax = 24 * time.Hour
		now, was := birthTime, time.Duration(0)
		b, _ := Breaker{Agent: "pay"}.Next(&p, now, Calls{0, 10}, Calls{})
		for range 100 {
			if long := b.Until.Sub(now); long < was || long > p.OpenMax {
				t.Fatalf("opening %d, from %v on: for %v, after %v", b.Openings, p.OpenFor, long, was)
			}
			now, was = b.Until, b.Until.Sub(now)
			b, _ = b.Next(&p, now, Calls{}, Calls{0, 1})
		}
		if was != p.OpenMax {
			t.Errorf("from %v on it is open for %v in the end, want %v", p.OpenFor, was, p.OpenMax)
		}
	}
}

// A trial lets twice as many through with each stage that succeeds, until the breaker is closed; one that fails opens it for
// twice as long, up to the most; and one that was closed for long begins again.
func TestBreakerTrial(t *testing.T) {
	bad := Calls{0, 10}
	step := func(b Breaker, now Instant, window, trial Calls) Breaker {
		t.Helper()
		next, changed := b.Next(&breakerPolicy, now, window, trial)
		if !changed || next.Revision != b.Revision+1 {
			t.Fatalf("%+v does not change by %v, %v: %+v", b, window, trial, next)
		}
		return next
	}
	now := birthTime
	b := step(Breaker{Agent: "pay"}, now, bad, Calls{})
	if _, changed := b.Next(&breakerPolicy, now, bad, Calls{5, 0}); changed {
		t.Error("an open one changes before its time")
	}
	for _, long := range []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 6 * time.Second} {
		now = b.Until
		if b = step(b, now, Calls{}, Calls{0, 1}); b.State != BreakerOpen || b.Until != now.Add(long) || b.Reason != "1 of 1 calls of a trial failed" {
			t.Fatalf("opened again: %+v, want it open for %v", b, long)
		}
	}
	now = b.Until
	for stage := range breakerStages + 1 {
		enough := int64(1) << stage
		if _, changed := b.Next(&breakerPolicy, now, bad, Calls{Done: enough - 1}); changed {
			t.Fatalf("stage %d is over after %d calls", stage, enough-1)
		}
		if got := b.Limit(now); got != int(enough) {
			t.Fatalf("stage %d lets %d through, want %d", stage, got, enough)
		}
		b = step(b, now, bad, Calls{Done: enough})
	}
	if b.State != BreakerClosed || b.Limit(now) != -1 {
		t.Fatalf("after all stages: %+v", b)
	}
	if again := step(b, now.Add(breakerPolicy.OpenMax-1), bad, Calls{}); again.Openings != 6 {
		t.Errorf("opened again soon: %+v", again)
	}
	if again := step(b, now.Add(breakerPolicy.OpenMax), bad, Calls{}); again.Openings != 1 {
		t.Errorf("opened again after long: %+v", again)
	}
}

// What an operator says counts until its time is over or it is let go.
func TestBreakerForced(t *testing.T) {
	now, bad := birthTime, Calls{0, 100}
	closed := Breaker{Agent: "pay"}.Force(BreakerClosed, now, now.Add(time.Minute), "olga", "it is known")
	if _, changed := closed.Next(&breakerPolicy, now.Add(time.Minute-1), bad, Calls{}); changed {
		t.Error("one that is held closed opens")
	}
	if b, changed := closed.Next(&breakerPolicy, now.Add(time.Minute), bad, Calls{}); !changed || b.State != BreakerOpen || b.Forced || b.By != "" {
		t.Errorf("after its time: %+v", b)
	}
	open := Breaker{Agent: "pay", Revision: 4, Openings: 3}.Force(BreakerOpen, now, 0, "olga", "maintenance")
	if open.Limit(now.Add(1000*time.Hour)) != 0 || open.Back(now) != 0 || open.Revision != 5 || !open.Holds(now.Add(time.Hour)) {
		t.Errorf("held open: %+v", open)
	}
	if _, changed := open.Next(&breakerPolicy, now, Calls{}, Calls{Done: 100}); changed {
		t.Error("one that is held open closes by itself")
	}
	if b := open.LetGo(now, "olga", "done"); b.State != BreakerClosed || b.Holds(now) || b.Revision != 6 || b.Limit(now) != -1 {
		t.Errorf("let go: %+v", b)
	}
	timed := Breaker{Agent: "pay"}.Force(BreakerOpen, now, now.Add(time.Minute), "olga", "maintenance")
	if state, _ := timed.At(now.Add(time.Minute)); state != BreakerTrial {
		t.Errorf("after its time it is %s, want a trial", state)
	}
}

// A task that cannot wait until its agent is back is undone at once, with the reason, whether it is born, comes to the step,
// is tried again, or is parked; one that can parks, and spends no attempt.
func TestBackTooLate(t *testing.T) {
	p := stepsPlan(2)
	p.CompleteBy, p.UndoReserve = time.Minute, 10*time.Second
	p.Steps[1].Least = 5 * time.Second
	last := birthTime.Add(50 * time.Second) // of the time for work
	gaveUp := func(r *rig, agent string) {
		t.Helper()
		var reason string
		for _, j := range r.journal {
			if j.Kind == KindExpired {
				reason = j.Reason
			}
		}
		if !strings.HasPrefix(reason, "the breaker of agent "+agent+" is open until ") || r.task.Why != reason {
			t.Fatalf("%s, reason %q, why %q", r.task, reason, r.task.Why)
		}
	}
	for _, c := range []struct {
		back  Instant
		parks bool
	}{{last - 1, true}, {last, false}, {0, true}} {
		r := newRig(t, p)
		r.task = &Task{ID: "t1", Type: r.plan.Name, Number: 1, CreatedAt: r.now, Input: []byte(`{}`)}
		Birth(r.plan, r.task, &Event{At: r.now, Actor: node, Full: StepSetOf(0), Back: []Instant{c.back, 0}}, &r.out)
		r.commit(&Task{})
		if parked := r.task.State == StatePending && r.task.WaitsFor == "agent.a"; parked != c.parks {
			t.Fatalf("born with the agent back at %d: %s", c.back, r.task)
		}
		if c.parks {
			if err := r.apply(Event{Kind: EventClaim, Full: StepSetOf(0), Back: []Instant{last - 1, 0}}); err == nil {
				t.Fatal("it is claimed though its agent is not back")
			}
			r.must(Event{Kind: EventClaim, Full: StepSetOf(0), Back: []Instant{last, 0}})
		}
		if r.task.State != StateUndone {
			t.Fatalf("%s, want it undone: it has done nothing", r.task)
		}
		gaveUp(r, "agent.a")
	}
	r := newRig(t, p)
	r.birth(0)
	r.answer(CodeAgentError)
	r.now = r.task.NextDue(r.plan)
	r.must(Event{Kind: EventWake, Full: StepSetOf(0), Back: []Instant{last - 1}})
	if s := &r.task.Steps[0]; r.task.State != StatePending || s.Attempt != 1 {
		t.Fatalf("parked between tries: %s, attempt %d", r.task, s.Attempt)
	}
	r.must(Event{Kind: EventClaim})
	if s := &r.task.Steps[0]; s.Attempt != 2 {
		t.Fatalf("the next attempt is %d, want 2", s.Attempt)
	}
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[0].Out, Result: []byte(`1`), Full: StepSetOf(1), Back: []Instant{0, last.Add(-5 * time.Second)}})
	if r.task.State != StateUndoing || r.task.Steps[0].Status != StepUndoing {
		t.Fatalf("%s, want the undo of its step a: step b needs 5 s", r.task)
	}
	gaveUp(r, "agent.b")
}

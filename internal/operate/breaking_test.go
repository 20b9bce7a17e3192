package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

func (w *world) Breakers(context.Context) ([]core.Breaker, error) {
	return slices.Clone(w.breakers), w.unread
}

// PutBreaker compares the revision as every store does. While w.lost is positive another has changed the row before.
func (w *world) PutBreaker(_ context.Context, b core.Breaker) (bool, error) {
	i := slices.IndexFunc(w.breakers, func(is core.Breaker) bool { return is.Agent == b.Agent })
	if w.lost > 0 {
		w.lost--
		if i < 0 {
			i, w.breakers = len(w.breakers), append(w.breakers, core.Breaker{Agent: b.Agent})
		}
		w.breakers[i].Revision++
	}
	switch {
	case w.failing != nil:
		return false, w.failing
	case i < 0 && b.Revision == 1:
		w.breakers = append(w.breakers, b)
	case i >= 0 && w.breakers[i].Revision == b.Revision-1:
		w.breakers[i] = b
	default:
		return false, nil
	}
	return true, nil
}

func (w *world) ReportCalls(context.Context, string, string, int64, core.Instant, core.Calls, core.Instant) (core.Calls, error) {
	return core.Calls{}, nil
}

func (w *world) breaking() *operate.Breaking {
	return &operate.Breaking{Store: w, Desk: w.desk(), Flow: w, Announce: func() error { w.told++; return errors.New("not now") }, Now: func() time.Time { return w.now }}
}

// TestForceBreaker: a breaker is opened, closed and let go with who and why, written down before, and told; also where it
// changes meanwhile.
func TestForceBreaker(t *testing.T) {
	w := newWorld()
	s := w.breaking()
	open := operate.ForceBreaker{Agent: "ship", State: operate.BreakerOpened, Until: w.now.Add(time.Hour), Reason: "the depot burns"}
	w.lost = 2
	got, err := s.Force(t.Context(), olga, open)
	want := operate.Breaker{State: core.BreakerOpen, Since: w.now, Until: open.Until, Forced: true, By: "olga", Reason: open.Reason}
	if err != nil || got != want || w.told != 1 {
		t.Fatalf("got %+v, %v, told %d times", got, err, w.told)
	}
	if is := w.breakers[0]; is.Revision != 3 || is.State != core.BreakerOpen || !is.Forced {
		t.Errorf("stored %+v", is)
	}
	e := w.last(t)
	var after operate.Breaker
	if json.Unmarshal(e.After, &after) != nil || after != want || e.Action != "breaker.open" || e.Target != "agent/ship" || e.Reason != open.Reason || e.Outcome != "done" || e.Role != operate.RoleOperator ||
		!strings.Contains(string(e.Before), `"state":"closed"`) {
		t.Errorf("audit trail %+v", e)
	}
	if got, err := s.Force(t.Context(), olga, operate.ForceBreaker{Agent: "ship", State: operate.BreakerClosed, Reason: "it was a drill"}); err != nil || got.State != core.BreakerClosed || !got.Forced || !got.Until.IsZero() {
		t.Errorf("closed: %+v, %v", got, err)
	}
	auto := operate.ForceBreaker{Agent: "ship", State: operate.BreakerAuto, Reason: "as it was"}
	if got, err := s.Force(t.Context(), olga, auto); err != nil || got.State != core.BreakerClosed || got.Forced || got.By != "olga" {
		t.Errorf("let go: %+v, %v", got, err)
	}
	_, err = s.Force(t.Context(), olga, auto)
	w.refusedWith(t, err, 409, "state", "is not forced")
	if w.told != 3 || w.breakers[0].Revision != 5 {
		t.Errorf("told %d times, stored %+v", w.told, w.breakers)
	}
}

// TestForceBreakerRefused: what cannot be is refused with the field and the limit, and written down. Nothing is stored
// without a trail.
func TestForceBreakerRefused(t *testing.T) {
	w := newWorld()
	s := w.breaking()
	ok := operate.ForceBreaker{Agent: "ship", State: operate.BreakerOpened, Reason: "r"}
	for _, x := range []struct {
		field, says string
		code        int
		change      func(*operate.ForceBreaker)
	}{
		{"agent", "a..b", 400, func(f *operate.ForceBreaker) { f.Agent = "a..b" }},
		{"agent", "no stored plan has a step at agent", 404, func(f *operate.ForceBreaker) { f.Agent = "shop" }},
		{"state", "want open, closed or auto", 400, func(f *operate.ForceBreaker) { f.State = "trial" }},
		{"state", "not forced", 409, func(f *operate.ForceBreaker) { f.State = operate.BreakerAuto }},
		{"until", "has passed", 400, func(f *operate.ForceBreaker) { f.Until = w.now }},
		{"until", "more than", 400, func(f *operate.ForceBreaker) { f.Until = w.now.Add(core.DurationMax + 1) }},
		{"until", "auto takes no until", 400, func(f *operate.ForceBreaker) { f.State, f.Until = operate.BreakerAuto, w.now.Add(1) }},
		{"reason", "empty", 400, func(f *operate.ForceBreaker) { f.Reason = " " }},
		{"reason", "at most", 400, func(f *operate.ForceBreaker) { f.Reason = strings.Repeat("r", core.WordsBytesMax+1) }},
	} {
		f := ok
		x.change(&f)
		_, err := s.Force(t.Context(), olga, f)
		w.refusedWith(t, err, x.code, x.field, x.says)
	}
	w.lost = 100
	_, err := s.Force(t.Context(), olga, ok)
	if r, is := errors.AsType[*operate.Refusal](err); !is || r.Code != 409 || !strings.Contains(w.last(t).Outcome, "refused: the breaker of agent ship was changed 5 times") {
		t.Errorf("one that changes all the time: %v, %+v", err, w.last(t))
	}
	w.lost, w.breakers = 0, nil
	for i := range core.BreakersMax {
		w.breakers = append(w.breakers, core.Breaker{Agent: fmt.Sprint("a", i), State: core.BreakerOpen, Revision: 1})
	}
	unknown := ok
	unknown.EvenIfUnknown = true
	_, err = s.Force(t.Context(), olga, unknown)
	w.refusedWith(t, err, 409, "", "the limit is 1000")
	w.failing = errors.New("no disk")
	if _, err := s.Force(t.Context(), olga, ok); !errors.Is(err, w.failing) || w.last(t).Outcome != "failed: no disk" {
		t.Errorf("a store that fails: %v, %+v", err, w.last(t))
	}
	w.failing, w.dumb = nil, errors.New("no trail")
	if _, err := s.Force(t.Context(), olga, ok); !away(err) || len(w.breakers) != core.BreakersMax || w.told != 0 {
		t.Errorf("a trail that cannot be written: %v, %d stored, told %d times", err, len(w.breakers), w.told)
	}
}

// TestBreakerOf: what is shown is what counts at the time.
func TestBreakerOf(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(minutes int) core.Instant { return core.InstantOf(now.Add(time.Duration(minutes) * time.Minute)) }
	for _, x := range []struct {
		is   core.Breaker
		want operate.Breaker
	}{
		{core.Breaker{}, operate.Breaker{State: core.BreakerClosed}},
		{core.Breaker{State: core.BreakerOpen, Since: at(-2), Until: at(1)}, operate.Breaker{State: core.BreakerOpen, Since: at(-2).Time(), Until: at(1).Time()}},
		{core.Breaker{State: core.BreakerOpen, Since: at(-2), Until: at(-1)}, operate.Breaker{State: core.BreakerTrial, Since: at(-1).Time()}},
		{core.Breaker{State: core.BreakerTrial, Since: at(-2), Stage: 3}, operate.Breaker{State: core.BreakerTrial, Since: at(-2).Time(), Stage: 3}},
		{core.Breaker{State: core.BreakerClosed, Since: at(-2), Until: at(1), Forced: true, By: "olga"}, operate.Breaker{State: core.BreakerClosed, Since: at(-2).Time(), Until: at(1).Time(), Forced: true, By: "olga"}},
		{core.Breaker{State: core.BreakerClosed, Since: at(-2), Until: at(-1), Forced: true, By: "olga"}, operate.Breaker{State: core.BreakerClosed, Since: at(-2).Time(), By: "olga"}},
		{core.Breaker{State: core.BreakerOpen, Since: at(-2), Forced: true}, operate.Breaker{State: core.BreakerOpen, Since: at(-2).Time(), Forced: true}},
	} {
		if got := operate.BreakerOf(&x.is, now); got != x.want {
			t.Errorf("of %+v: got %+v, want %+v", x.is, got, x.want)
		}
	}
}

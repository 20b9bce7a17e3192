package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// TestNamesNobodyKnows: a pause, a limit, a breaker and a pin of a name that nobody has heard of is refused, with the name
// that is near and the field that insists; with it, it is made. What is there already can be changed whatever its name.
//
// covers: OP19, OP16
func TestNamesNobodyKnows(t *testing.T) {
	b, limits := newBounds()
	pauses, breakers, partitions := b.pausing(), b.breaking(), b.partitioning()
	for _, x := range []struct {
		what, field, says string
		do                func(anyway bool) error
	}{
		{"a pause of a type", "type", `type "ordr" is unknown: no plan of that name is stored: is order meant?`, func(anyway bool) error {
			_, err := pauses.SetPause(t.Context(), olga, operate.Pause{Type: "ordr", Reason: "r", EvenIfUnknown: anyway})
			return err
		}},
		{"a pause of a step", "step", `no stored plan of type "order" has a step "payy": is pay meant?`, func(anyway bool) error {
			_, err := pauses.SetPause(t.Context(), olga, operate.Pause{Type: "order", Step: "payy", Reason: "r", EvenIfUnknown: anyway})
			return err
		}},
		{"a pause of a step of another type", "step", `no stored plan of type "order" has a step "wrap"`, func(anyway bool) error {
			_, err := pauses.SetPause(t.Context(), olga, operate.Pause{Type: "order", Step: "wrap", Reason: "r", EvenIfUnknown: anyway})
			return err
		}},
		{"a pause of an agent", "agent", `no stored plan has a step at agent "paiment": is payment meant?`, func(anyway bool) error {
			_, err := pauses.SetPause(t.Context(), olga, operate.Pause{Agent: "paiment", Reason: "r", EvenIfUnknown: anyway})
			return err
		}},
		{"a pause of an agent of another type", "agent", `no stored plan of type "order" has a step at agent "wrap"`, func(anyway bool) error {
			_, err := pauses.SetPause(t.Context(), olga, operate.Pause{Type: "order", Agent: "wrap", Reason: "r", EvenIfUnknown: anyway})
			return err
		}},
		{"a limit", "agent", `no stored plan has a step at agent "shipp": is ship meant?`, func(anyway bool) error {
			_, err := limits.SetLimit(t.Context(), olga, operate.SetLimit{Agent: "shipp", Concurrent: 1, Reason: "r", EvenIfUnknown: anyway})
			return err
		}},
		{"a breaker", "agent", `no stored plan has a step at agent "wrapp": is wrap meant?`, func(anyway bool) error {
			_, err := breakers.Force(t.Context(), olga, operate.ForceBreaker{Agent: "wrapp", State: operate.BreakerOpened, Reason: "r", EvenIfUnknown: anyway})
			return err
		}},
		{"a pin", "node", `no node "node-1" is live`, func(anyway bool) error {
			return partitions.Pin(t.Context(), olga, 0, "node-1", "r", anyway)
		}},
	} {
		err := x.do(false)
		b.refusedWith(t, err, 404, x.field, x.says)
		if bad, _ := errors.AsType[*operate.Refusal](err); bad.Insist != "even_if_unknown" {
			t.Errorf("%s: it is not said how it is made all the same: %+v", x.what, bad)
		}
		if len(b.pauses)+len(b.limits)+len(b.breakers)+len(b.wishes) > 0 {
			t.Fatalf("%s: it is made", x.what)
		}
		if err := x.do(true); err != nil || b.last(t).Outcome != "done" {
			t.Errorf("%s, all the same: %v", x.what, err)
		}
		if x.field == "agent" && !strings.HasPrefix(x.what, "a pause") {
			if err := x.do(false); err != nil {
				t.Errorf("%s, which is there: %v", x.what, err)
			}
		}
		b.pauses, b.limits, b.breakers, b.wishes = map[string]operate.Pause{}, nil, nil, map[int]core.Wish{}
	}
}

// TestNamesOfPlansThatCannotBeRead: what a plan of a newer node has is not said to be unknown, where its name is known; and
// what names nothing needs no plan.
//
// covers: OP19, OP16
func TestNamesOfPlansThatCannotBeRead(t *testing.T) {
	w := newWorld()
	for _, p := range []operate.Pause{{Type: "new", Step: "first", Agent: "first", Reason: "r"}, {Label: "tier=gold", Reason: "r"}, {Reason: "r"}, {Type: "gift", Step: "wrap", Agent: "wrap", Reason: "r"}} {
		if _, err := w.pausing().SetPause(t.Context(), olga, p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// stamps are the versions that are deprecated.
type stamps struct{ core.Deprecations }

func (s *stamps) Deprecated(context.Context) (core.Deprecations, error) { return s.Deprecations, nil }

func (s *stamps) Deprecate(_ context.Context, name string, version int64, at core.Instant) error {
	s.Deprecations = append(s.Deprecations, core.Deprecation{Name: name, Version: version, At: at})
	return nil
}

// TestDeprecateWhatOthersCall: the last version of a plan of which others have children is deprecated only when that is
// insisted on; those are named, deprecated ones too, whose tasks in flight go on. One of several versions is.
//
// covers: OP16
func TestDeprecateWhatOthersCall(t *testing.T) {
	w := newWorld()
	w.plans = append(w.plans, core.Plan{Name: "trip", Version: 3, Steps: []core.Step{{Name: "wrap", Kind: core.TaskStep, Child: "gift"}, {Name: "buy", Kind: core.EachStep, Child: "order"}}})
	store := &stamps{}
	s := &operate.Versioning{Store: store, Desk: w.desk(), Plans: w.Plans, Announce: func() error { return nil }, Now: func() time.Time { return w.now }}
	for _, x := range []struct {
		ask  operate.Deprecate
		says string // empty: it is done
	}{
		{operate.Deprecate{Name: "gift", Version: 1}, `these steps, whose children are of it, fail then: plan trip version 3, step wrap`},
		{operate.Deprecate{Name: "order", Version: 1}, ""},
		{operate.Deprecate{Name: "order", Version: 2}, `version 2 is the last of plan "order" that is not deprecated`},
		{operate.Deprecate{Name: "order", Version: 2, EvenIfCalled: true}, ""},
		{operate.Deprecate{Name: "trip", Version: 3}, ""},
		{operate.Deprecate{Name: "gift", Version: 1}, `these steps, whose children are of it, fail then: plan trip version 3, step wrap`},
		{operate.Deprecate{Name: "gift", Version: 1, EvenIfCalled: true}, ""},
	} {
		was := len(store.Deprecations)
		x.ask.Reason = "old"
		_, err := s.Deprecate(t.Context(), olga, x.ask)
		if x.says != "" {
			w.refusedWith(t, err, 409, "version", x.says)
			if bad, _ := errors.AsType[*operate.Refusal](err); bad.Insist != "even_if_called" || len(store.Deprecations) != was {
				t.Errorf("%+v: %+v", x.ask, bad)
			}
		} else if err != nil || len(store.Deprecations) != was+1 {
			t.Errorf("%+v: %v", x.ask, err)
		}
	}
}

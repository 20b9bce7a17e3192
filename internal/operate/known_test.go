package operate_test

import (
	"errors"
	"strings"
	"testing"

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

package duly_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

func TestAwait(t *testing.T) {
	r := newRig(t)
	quote := duly.NewCheck[Order, Score]("quote", "desk.quote")
	plan := duly.ResultOf(duly.NewPlan("quote", 1, quote), quote)
	ended := core.InstantOf(time.Now())
	r.views["good"] = core.View{ID: "good", Type: "quote", State: core.StateProcessed, EndedAt: ended, Result: []byte(`{"Points":7}`)}
	r.views["bad"] = core.View{ID: "bad", Type: "quote", State: core.StateUndone, FailedStep: "quote", Reason: "no stock", EndedAt: ended}
	r.views["strange"] = core.View{ID: "strange", Type: "quote", State: core.StateProcessed, EndedAt: ended, Result: []byte(`"x"`)}
	if score, err := plan.Await(t.Context(), r.Client, "good"); err != nil || score.Points != 7 {
		t.Errorf("%+v: %v", score, err)
	}
	if _, err := plan.Await(t.Context(), r.Client, "bad"); !errors.Is(err, duly.ErrNotProcessed) || !strings.Contains(err.Error(), "undone because of step quote: no stock") {
		t.Errorf("undone: %v", err)
	}
	if _, err := plan.Await(t.Context(), r.Client, "strange"); err == nil || errors.Is(err, duly.ErrNotProcessed) || !strings.Contains(err.Error(), "its result") {
		t.Errorf("another result: %v", err)
	}
}

// boxes is a codec of a user's own, whose payloads an expression can hand on.
type boxes struct{}

func (boxes) Encode(at duly.Place, payload []byte) ([]byte, error) {
	return json.Marshal(map[string]any{"boxed": payload, "for": at.Step})
}

func (boxes) Decode(at duly.Place, stored []byte) ([]byte, error) {
	var box struct {
		Boxed []byte `json:"boxed"`
		For   string `json:"for"`
	}
	if err := json.Unmarshal(stored, &box); err != nil || box.Boxed == nil || box.For != at.Step {
		return nil, duly.ErrNotAuthentic
	}
	return box.Boxed, nil
}

// TestAwaitWithACodec: a result that is a step's is read as that step answered it, and not as an object of zeros.
func TestAwaitWithACodec(t *testing.T) {
	r := newRigIn(t, wire.DefaultNamespace, duly.WithCodec(boxes{}))
	quote := duly.NewCheck[Order, Score]("quote", "desk.quote")
	plan := duly.ResultOf(duly.NewPlan("quote", 1, quote), quote)
	input, err := boxes{}.Encode(duly.Place{}, []byte(`{"Cents":1}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := boxes{}.Encode(duly.Place{Step: "quote"}, []byte(`{"Points":7}`))
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]string
	if err := json.Unmarshal(answer, &members); err != nil {
		t.Fatal(err)
	}
	handedOn := []byte(`{ "for": "quote", "boxed": "` + members["boxed"] + `" }`) // as an expression writes it
	r.views["good"] = core.View{ID: "good", Type: "quote", State: core.StateProcessed, EndedAt: core.InstantOf(time.Now()), Input: input, Result: handedOn,
		Steps: []core.StepView{{Name: "quote", Result: answer}}}
	r.views["own"] = core.View{ID: "own", Type: "quote", State: core.StateProcessed, EndedAt: core.InstantOf(time.Now()), Input: input, Result: []byte(`{"Points":3}`),
		Steps: []core.StepView{{Name: "quote", Result: answer}}}
	for id, want := range map[string]int{"good": 7, "own": 3} {
		if score, err := plan.Await(t.Context(), r.Client, id); err != nil || score.Points != want {
			t.Errorf("%s: %+v: %v, want %d points", id, score, err, want)
		}
	}
}

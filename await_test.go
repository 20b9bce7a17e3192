package duly_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
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

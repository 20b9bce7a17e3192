package repair

import (
	"context"
	"errors"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

type pauses struct {
	operate.PauseStore
	all []operate.Pause
	err error
}

func (p pauses) Pauses(context.Context) ([]operate.Pause, error) { return p.all, p.err }

type agents []operate.Agent

func (a agents) Agents(context.Context) ([]operate.Agent, error) { return a, nil }

// A pause holds what it names and no undo, an agent that is away holds both, and what is not known holds nothing.
//
// covers: OP3
func TestHolds(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	plan := orders(core.PolicyError)
	order, quote := &core.Task{Type: "order"}, &core.Task{Type: "quote"}
	reserve, pay, ship := &plan.Steps[0], &plan.Steps[1], &plan.Steps[2]
	h := NewHolds(pauses{all: []operate.Pause{
		{Type: "order", Step: "pay", By: "olga"},
		{Agent: "stock", Until: now.Add(-time.Second)}, // over
		{Agent: "stock", Type: "quote", Until: now.Add(time.Second), By: "olga"},
	}}, agents{{Name: "carrier", Gone: true}, {Name: "bank", Instances: -1}, {Name: "stock", Instances: 2}}, func() time.Time { return now })
	hold, err := h.Holds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		t    *core.Task
		s    *core.Step
		undo bool
		want string
	}{
		{"paused", order, pay, false, "step pay of tasks of type order is paused by olga"},
		{"the undo of what is paused", order, pay, true, ""},
		{"of another type", quote, pay, false, ""},
		{"its pause is over", order, reserve, false, ""},
		{"by agent and type", quote, reserve, false, "step reserve of tasks of type quote is paused by olga"},
		{"away", order, ship, false, "agent carrier has no running instance"},
		{"the undo of one away", order, ship, true, "agent carrier has no running instance"},
	} {
		if got := hold(test.t, test.s, test.undo); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	away := errors.New("away")
	if _, err := NewHolds(pauses{err: away}, nil, time.Now).Holds(t.Context()); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
}

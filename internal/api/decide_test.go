package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// lives are tasks with a journal, in every state and in what is odd in one.
func lives() map[string]core.View {
	all := map[string]core.View{}
	for _, state := range []core.State{core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndoing, core.StateUndone, core.StateError} {
		literal := core.View{ID: "d-1", Type: "delivery", State: state, Seq: 7, Input: []byte(`{}`)}
		all[string(state)] = lived(literal, nil)
		all[string(state)+", a child"] = lived(literal, func(t *core.Task) { t.ID, t.Parent = "d-1~drone~1~0", 4 })
	}
	odd := func(name string, state core.State, change func(*core.Task)) {
		all[name] = lived(core.View{ID: "d-1", Type: "delivery", State: state, Seq: 7, Input: []byte(`{}`)}, change)
	}
	odd("asks for its signal", core.StatePending, func(t *core.Task) {
		t.Steps[0].Status, t.Steps[0].Out = core.StepDone, 0
		t.Steps[1].Status, t.Steps[1].Out, t.Steps[1].Due = core.StepRunning, 7, epoch.Add(time.Hour)
	})
	odd("asks again", core.StatePending, func(t *core.Task) {
		t.Steps[0].Status, t.Steps[0].Out, t.TakenUp = core.StepDone, 0, 5
		t.Steps[1].Status, t.Steps[1].Out, t.Steps[1].Due = core.StepRunning, 7, epoch.Add(time.Hour)
	})
	odd("its signal is late", core.StatePending, func(t *core.Task) {
		t.Steps[0].Status, t.Steps[0].Out = core.StepDone, 0
		t.Steps[1].Status, t.Steps[1].Out, t.Steps[1].Due = core.StepRunning, 7, epoch.Add(-1)
	})
	odd("stopped at its signal", core.StateError, func(t *core.Task) {
		t.Steps[0].Status = core.StepDone
		t.Steps[1].Status = core.StepFailed
	})
	odd("an undo has begun", core.StateError, func(t *core.Task) { t.Steps[0].Status = core.StepUndone })
	odd("the database went back", core.StateError, func(t *core.Task) { t.WentBackAt = epoch })
	odd("edited often", core.StateError, func(t *core.Task) { t.Earlier = make([][]byte, core.EditsMax) })
	return all
}

// requests are one of each kind, and with what may be wrong about it.
func requests() []core.Control {
	all := []core.Control{
		{Kind: core.EventCancel}, {Kind: core.EventUndo}, {Kind: core.EventUndo, Step: "drone"}, {Kind: core.EventResubmit}, {Kind: core.EventResubmit, Step: "approve"},
		{Kind: core.EventResubmit, Until: epoch.Add(-1)}, {Kind: core.EventResubmit, IfSeq: 6}, {Kind: core.EventEdit, Input: []byte(`{}`)}, {Kind: core.EventAccept, Result: []byte(`1`)},
		{Kind: core.EventAccept, Result: []byte(`1`), Step: "nope"}, {Kind: core.EventResolve, As: core.StateUndone}, {Kind: core.EventResolve, As: core.StateError},
		{Kind: core.EventExtend, Until: epoch.Add(time.Hour)}, {Kind: core.EventExtend, Until: epoch.Add(time.Second)}, {Kind: core.EventSignal, Step: "approve", Result: []byte(`true`)},
		{Kind: core.EventSignal, Step: "approve", Reason: "no"}, {Kind: core.EventSignal, Step: "drone", Result: []byte(`true`)}, {Kind: core.EventSignal, Step: "nope", Result: []byte(`true`)},
		{Kind: core.EventMigrate, Version: 2}, {Kind: core.EventMigrate, Version: 1},
	}
	for i := range all {
		all[i].ID, all[i].Type = "d-1", "delivery"
	}
	return all
}

// TestDoorsSayWhatTheOwnerSays: of each request and each state a door refuses exactly what the owner's own function refuses,
// in its words; what it takes it only says to have asked for.
//
// covers: W10
func TestDoorsSayWhatTheOwnerSays(t *testing.T) {
	a := newSite(t).asks
	refused, taken := 0, 0
	for name, view := range lives() {
		for _, c := range requests() {
			c.ID = view.ID
			what := fmt.Sprintf("%s, %s %s %s", name, word(c.Kind), c.Step, c.Reason)
			ev := c.Event(epoch)
			if c.Kind == core.EventMigrate {
				ev.Plan, _ = a.planOf(t.Context(), "delivery", c.Version)
			}
			_, err := view.Would(view.Plan(), &ev)
			outcome, bad := a.decide(t.Context(), &c, &view)
			again := errors.Is(err, core.ErrStale) && view.State != core.StateProcessed && (c.Kind == core.EventCancel || c.Kind == core.EventUndo)
			switch {
			case err != nil && !again:
				refused++
				_, why, _ := strings.Cut(err.Error(), string(view.State)+": ")
				if bad == nil || bad.Code != 409 && bad.Code != 428 || !strings.Contains(bad.Description, why) || outcome != "" {
					t.Errorf("%s: the door says %q, %+v, the owner %v", what, outcome, bad, err)
				}
			case bad != nil || !strings.HasPrefix(outcome, "asked: ") || again != strings.HasPrefix(outcome, "asked: nothing changes: "):
				t.Errorf("%s: the door says %q, %+v, the owner %v", what, outcome, bad, err)
			default:
				taken++
			}
		}
	}
	if refused < 100 || taken < 30 {
		t.Errorf("%d were refused and %d taken", refused, taken)
	}
	for name, view := range lives() { // and nothing of it has changed a task
		if fresh := lives()[name]; fmt.Sprintf("%+v", view.Steps) != fmt.Sprintf("%+v", fresh.Steps) {
			t.Errorf("%s was changed", name)
		}
	}
}

// TestPayloadsFitAtEveryDoor: an answer to a signal, also one that is accepted by hand, fits the schema of its step and an
// input that of the plan, whoever asks; a part of another task is not undone by itself.
//
// covers: W2, W10
func TestPayloadsFitAtEveryDoor(t *testing.T) {
	all := lives()
	large := []byte(`{"a":"` + strings.Repeat("x", core.ResultBytesMax) + `"}`)
	for _, x := range []struct {
		view string
		r    operate.Request
		code int
		says string
	}{
		{"asks for its signal", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: []byte(`"yes"`)}, 422, "does not fit the schema of step approve"},
		{"asks for its signal", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: large}, 413, "the limit is 65536"},
		{"asks for its signal", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: []byte(`true`)}, 0, "asked: step approve is answered"},
		{"asks for its signal", operate.Request{Action: operate.ActionSignal, Step: "approve", Reason: "too dear"}, 0, "asked: step approve is refused"},
		{"asks for its signal", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: []byte(`true`), Ask: all["asks again"].Steps[1].Ask}, 409, "for another ask of step approve"},
		{"asks again", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: []byte(`true`), Ask: all["asks for its signal"].Steps[1].Ask}, 409, "for another ask of step approve"},
		{"asks again", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: []byte(`true`)}, 428, "say which ask of step approve it answers"},
		{"asks again", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: []byte(`true`), Ask: all["asks again"].Steps[1].Ask}, 0, "asked: step approve is answered"},
		{"processing", operate.Request{Action: operate.ActionSignal, Step: "approve", Result: []byte(`true`)}, 0, "asked: the answer is kept until step approve begins"},
		{"processing", operate.Request{Action: operate.ActionSignal, Step: "drone", Result: []byte(`true`)}, 409, "step drone waits for no signal; the step that accepts answers is approve"},
		{"stopped at its signal", operate.Request{Action: operate.ActionAccept, Reason: "r", Result: []byte(`"yes"`)}, 422, "does not fit the schema of step approve"},
		{"stopped at its signal", operate.Request{Action: operate.ActionAccept, Reason: "r", Result: []byte(`true`)}, 0, "asked: the step where it stopped counts as done"},
		{"error", operate.Request{Action: operate.ActionEdit, Reason: "r", Input: []byte(`"text"`)}, 422, "does not fit the input schema of plan delivery version 1"},
		{"error", operate.Request{Action: operate.ActionMigrate, Reason: "r", Version: 3}, 404, "in version 3"},
		{"processed, a child", operate.Request{Action: operate.ActionUndo, Reason: "r"}, 409, "which alone decides about it"},
		{"processing, a child", operate.Request{Action: operate.ActionCancel}, 409, "which alone decides about it"},
	} {
		d := newDeed(t)
		view := all[x.view]
		d.views["d-1"] = view
		check := func(door, outcome string, code int, detail string) {
			t.Helper()
			if code != x.code || !strings.Contains(outcome+detail, x.says) || len(d.controls) > 0 != (code == 0) {
				t.Errorf("%s: %s of a task that is %s: %d %s %s, want %d %s; %d stored", door, x.r.Action, x.view, code, outcome, detail, x.code, x.says, len(d.controls))
			}
			d.controls = nil
		}
		answer, bad := d.act(t, olga, x.r)
		if bad == nil {
			bad = &operate.Refusal{}
		}
		check("HTTP", answer.Outcome, bad.Code, bad.Detail)
		if view := d.views["d-1"]; (x.code == 409 || x.code == 428) && len(bad.Possible) != len(operate.Possible(olga, &view)) {
			t.Errorf("%s of a task that is %s: %d says that %v is possible", x.r.Action, x.view, bad.Code, bad.Possible)
		}
		taken, no := d.site.asks.Ask(t.Context(), controlOf(olga, d1, &x.r))
		if no == nil {
			check("NATS", taken.Outcome, 0, "")
		} else {
			check("NATS", "", no.Code, no.Description)
		}
	}
}

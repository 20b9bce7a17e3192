package api

import (
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// What a signal leads to is said before it is stored; one that would change nothing is refused.
func TestSignalIsForeseen(t *testing.T) {
	view := func(state core.State, status core.StepStatus) *core.View {
		return &core.View{ID: "o-1", Type: "order", State: state, Steps: []core.StepView{{Name: "charge", Agent: "pay", Status: "done"}, {Name: "approve", Kind: core.SignalStep, Status: status.String()}}}
	}
	yes := core.Control{Kind: core.EventSignal, ID: "o-1", Step: "approve", Result: []byte(`true`)}
	no, call, nowhere := yes, yes, yes
	no.Result, no.Reason = nil, "too dear"
	call.Step, nowhere.Step = "charge", "elsewhere"
	again := view(core.StateProcessing, core.StepWaiting)
	again.Steps[1].Status, again.Possible = core.SignalledWord, []string{"cancel"}
	for _, x := range []struct {
		c    core.Control
		view *core.View
		want string // of the outcome, or after ! of the refusal
	}{
		{yes, view(core.StatePending, core.StepRunning), "step approve is done"},
		{no, view(core.StatePending, core.StepRunning), "step approve is refused"},
		{yes, view(core.StateProcessing, core.StepWaiting), "it is kept until step approve begins"},
		{yes, again, `!task "o-1" is processing: step approve has had its signal, which is kept until the step begins; possible now: cancel`},
		{no, again, `!task "o-1" is processing: step approve has had its signal, which is kept until the step begins; possible now: cancel`},
		{yes, view(core.StateProcessing, core.StepDone), `!task "o-1" is processing: step approve has had its signal: it is done; nothing else can be asked of it now`},
		{yes, view(core.StateProcessing, core.StepSkipped), `!task "o-1" is processing: step approve is skipped: the signal comes too late; nothing else can be asked of it now`},
		{yes, view(core.StateProcessing, core.StepFailed), `!task "o-1" is processing: step approve has failed: the signal comes too late; nothing else can be asked of it now`},
		{yes, view(core.StateUndoing, core.StepRunning), `!task "o-1" is undoing: the signal for step "approve" comes too late; nothing else can be asked of it now`},
		{yes, view(core.StateProcessed, core.StepDone), `!task "o-1" is processed: the signal for step "approve" comes too late; nothing else can be asked of it now`},
		{call, view(core.StateProcessing, core.StepRunning), `!task "o-1" is processing: step charge waits for no signal, signals go to approve; nothing else can be asked of it now`},
		{nowhere, view(core.StateProcessing, core.StepRunning), `!task "o-1" is processing: its plan has no step "elsewhere", signals go to approve; nothing else can be asked of it now`},
		{nowhere, &core.View{ID: "o-1", State: core.StatePending}, `!task "o-1" is pending: its plan has no step "elsewhere", and no other step of it takes a signal; nothing else can be asked of it now`},
	} {
		outcome, bad := foresee(&x.c, x.view)
		if want, refused := strings.CutPrefix(x.want, "!"); refused != (bad != nil) || bad != nil && (bad.Code != 409 || bad.Description != want) || bad == nil && outcome != want {
			t.Errorf("%s of step %s: %q, %+v, want %s", x.view.State, x.c.Step, outcome, bad, x.want)
		}
	}
}

// An answer to another ask is refused, and one without a token where it is needed.
//
// covers: W2
func TestSignalOfAnotherAskIsForeseen(t *testing.T) {
	for name, x := range map[string]struct {
		ask    string
		needed bool
		code   int // 0: it is asked
	}{
		"none": {"", false, 0}, "none, needed": {"", true, 428}, "its own": {"0.ab", true, 0}, "another": {"0.cd", false, 409},
	} {
		for _, status := range []core.StepStatus{core.StepRunning, core.StepWaiting} {
			view := &core.View{ID: "o-1", Type: "order", State: core.StateProcessing, Steps: []core.StepView{
				{Name: "approve", Kind: core.SignalStep, Status: status.String(), Ask: "0.ab", AskNeeded: x.needed}}}
			_, bad := foresee(&core.Control{Kind: core.EventSignal, ID: "o-1", Step: "approve", Result: []byte(`true`), Ask: x.ask}, view)
			if bad != nil && bad.Code != x.code || bad == nil && x.code != 0 {
				t.Errorf("%s, %s: %+v, want %d", name, status, bad, x.code)
			}
		}
	}
}

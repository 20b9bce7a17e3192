package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// What the parts of a plan rest on is looked at where it is applied, and the payload of a signal where it is asked.
func TestPlanOfOtherPlansAndSignals(t *testing.T) {
	c := startClockwork(t)
	apply := func(p core.Plan) wire.PlanAnswer {
		t.Helper()
		spec, err := wire.EncodePlan(&p)
		if err != nil {
			t.Fatal(err)
		}
		return c.applyPlan(spec)
	}
	parent := func(child string) core.Plan {
		return core.Plan{Name: "parent", Version: 1, Steps: []core.Step{{Name: "sub", Kind: core.TaskStep, Child: child, CompleteBy: time.Minute}}}
	}
	answer := apply(parent("tock"))
	if answer.Error == nil || answer.Error.Code != 400 || !strings.Contains(answer.Error.Description, `plan parent: step sub: child is "tock", and no plan of that name is stored`) {
		t.Errorf("a child without a plan: %+v", answer)
	}
	if answer := apply(parent("tick")); answer.Error != nil {
		t.Errorf("a child with a plan: %v", answer.Error.Description)
	}
	if answer := apply(core.Plan{Name: "asks", Version: 1, Steps: []core.Step{
		{Name: "yes", Kind: core.SignalStep, CompleteBy: 30 * time.Second, Schema: `{"type":"object","required":["by"]}`}}}); answer.Error != nil {
		t.Fatal(answer.Error.Description)
	}
	ctx := t.Context()
	if _, err := c.client.SubmitRaw(ctx, "asks", "a-1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	refused, some := errors.AsType[*duly.SubmitError](c.client.SignalRaw(ctx, "asks", "a-1", "yes", []byte(`{"to":1}`)))
	if !some || refused.Code != 422 || !strings.Contains(refused.Description, "the payload does not fit the schema of step") {
		t.Errorf("a payload that does not fit: %v", refused)
	}
	if err := c.client.SignalRaw(ctx, "asks", "a-1", "yes", []byte(`{"by":"olga"}`)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the signal is taken", func() bool {
		task, err := c.client.Get(ctx, "asks", "a-1")
		return err == nil && task.State == duly.StateProcessed
	})
}

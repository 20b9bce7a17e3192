package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/taskform"
)

// decisionRowsMax bounds the journal that is played for the values of conditions.
const decisionRowsMax = 20_000

type (
	// conditionsJSON are the conditions of a task's steps in its round.
	conditionsJSON struct {
		Conditions []conditionJSON `json:"conditions"`
	}
	conditionJSON struct {
		Step   string     `json:"step"`
		When   string     `json:"when" doc:"CEL"`
		Holds  *bool      `json:"holds,omitempty" doc:"as the journal says; absent: it was not asked in this round"`
		Row    int64      `json:"row,omitempty" doc:"of the journal, that decided"`
		At     string     `json:"at,omitempty"`
		Terms  []termJSON `json:"terms" doc:"the parts of the condition, at most 64, computed again from the journal up to that row"`
		Failed string     `json:"failed,omitempty" doc:"why it has no value"`
	}
	termJSON struct {
		Term   string `json:"term"`
		Value  string `json:"value,omitempty" doc:"JSON, cut to 200 bytes"`
		Failed string `json:"failed,omitempty" doc:"why it has no value"`
	}
)

// conditionRoute is why steps began, or did not.
func (a *api) conditionRoute() {
	register(a, route{method: http.MethodGet, path: "/v1/tasks/{type}/{id}/conditions", id: "getConditions", tag: "tasks", needs: operate.RoleViewer,
		summary: "What was decided of each condition of a task's steps, and by what values"}, func(ctx context.Context, in *TaskIn) (conditionsJSON, error) {
		all, err := a.decisions(ctx, in.Type, in.ID)
		out := conditionsJSON{Conditions: make([]conditionJSON, len(all))}
		for i := range all {
			out.Conditions[i] = conditionOf(&all[i])
		}
		return out, err
	})
}

// decisions plays the journal of a task whose plan has conditions.
func (a *api) decisions(ctx context.Context, taskType, id string) ([]expr.Decision, error) {
	view, err := a.known(ctx, taskType, id)
	if err != nil {
		return nil, err
	}
	if view.Seq > decisionRowsMax {
		return nil, ingest.Refuse(422, ingest.CauseQuery, "%s", say.Of("refuse.rows-many", "id", core.QuoteShort(id), "rows", view.Seq, "limit", decisionRowsMax))
	}
	plan, err := a.planOf(ctx, view.Type, view.PlanVersion)
	if err != nil || plan == nil {
		return nil, err
	}
	saved, err := a.saved(ctx, &view)
	if err != nil {
		return nil, err
	}
	all, err := a.programs.Decisions(plan, saved)
	if err != nil {
		return nil, fmt.Errorf("conditions of task %s: %w", id, err)
	}
	return all, nil
}

// saved is a task with its journal.
func (a *api) saved(ctx context.Context, view *core.View) (*core.Saved, error) {
	all, err := a.ports.OperationStore.Saved(ctx, view.Partition, []int64{view.Number})
	if err != nil {
		return nil, fmt.Errorf("journal of task %s: %w", view.ID, err)
	}
	if len(all) == 0 || len(all[0].Journal) == 0 {
		return nil, ingest.Refuse(404, ingest.CauseNotFound, "%s", say.Of("refuse.journal-forgotten", "id", core.QuoteShort(view.ID)))
	}
	return &all[0], nil
}

// planOf is a version of a plan; nil: this node does not know it.
func (a *api) planOf(ctx context.Context, name string, version int64) (*core.Plan, error) {
	plans, err := a.storedPlans(ctx)
	return core.FindPlan(plans, name, version), err
}

// storedPlans are the stored plans that this version can read.
func (a *api) storedPlans(ctx context.Context) ([]core.Plan, error) {
	plans, err := a.ports.Reader.Plans(ctx)
	if _, newer := errors.AsType[core.UnreadablePlans](err); err != nil && !newer {
		return nil, fmt.Errorf("plans: %w", err)
	}
	return plans, nil
}

func conditionOf(d *expr.Decision) conditionJSON {
	c := conditionJSON{Step: d.Step, When: d.Text, Row: d.Row, At: taskform.Time(d.At), Failed: d.Failed, Terms: make([]termJSON, len(d.Terms))}
	if d.Decided != "" {
		holds := d.Decided == "true"
		c.Holds = &holds
	}
	for i, t := range d.Terms {
		c.Terms[i] = termJSON{Term: t.Text, Value: t.Value, Failed: t.Failed}
	}
	return c
}

package console

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// condition is the condition of a step, what was decided by it, and by what values.
type condition struct {
	Step    string
	Text    string
	Decided string // true or false, as the journal says; empty: it was not asked in this round
	Row     int64  // the journal row that says so
	At      core.Instant
	Terms   []expr.Term // with their values at that row
	Failed  string      // why it has no value
}

// conditionsOf are the conditions of a task's steps in its round, as they were decided. The values are computed again
// from what the journal has up to that row: the decision is the journal's own.
func conditionsOf(programs *expr.Cache, plan *core.Plan, saved *core.Saved) ([]condition, error) {
	program, err := programs.Program(plan)
	if err != nil || program == nil {
		return nil, err
	}
	all := make([]condition, len(plan.Steps))
	player := core.Play(plan, saved)
	round := 0
	for i := range saved.Journal {
		r := &saved.Journal[i]
		if _, err := player.Next(); err != nil {
			return nil, err
		}
		if r.Round != round {
			round, all = r.Round, make([]condition, len(plan.Steps))
		}
		step, decided := -1, ""
		switch {
		case r.Kind == core.KindSkipped:
			step, decided = r.Step, "false"
		case r.Next >= 0 && !r.Undo:
			step, decided = r.Next, "true"
		}
		if step < 0 || plan.Steps[step].When == "" || decided == "true" && all[step].Decided == decided {
			continue
		}
		e, _ := program.Evidence(player.Task(), step)
		all[step] = condition{Decided: decided, Row: r.Seq, At: r.At, Terms: e.Terms, Failed: e.Failed}
	}
	var shown []condition
	for i := range plan.Steps {
		if plan.Steps[i].When == "" {
			continue
		}
		all[i].Step, all[i].Text = plan.Steps[i].Name, plan.Steps[i].When
		shown = append(shown, all[i])
	}
	return shown, nil
}

// conditions reads the journal of a task whose plan has conditions. Where it cannot be played the texts are shown alone.
func (c *console) conditions(ctx context.Context, plan *core.Plan, v *core.View) []condition {
	if plan == nil {
		return nil
	}
	var texts []condition
	for i := range plan.Steps {
		if plan.Steps[i].When != "" {
			texts = append(texts, condition{Step: plan.Steps[i].Name, Text: plan.Steps[i].When, Failed: "its journal cannot be played here"})
		}
	}
	if len(texts) == 0 || c.Operations == nil || len(v.Steps) == 0 || v.Seq > replayRowsMax {
		return texts
	}
	rec, err := c.recording(ctx, v.Type, v.ID)
	if err != nil || rec.plan == nil {
		return texts
	}
	all, err := conditionsOf(&c.programs, rec.plan, rec.saved)
	if err != nil {
		for i := range texts {
			texts[i].Failed = fmt.Sprintf("it has no value here: %v", err)
		}
		return texts
	}
	return all
}

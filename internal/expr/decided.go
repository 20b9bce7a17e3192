package expr

import "duly.dev/duly/internal/core"

// Decision is the condition of a step, what was decided by it, and by what values.
type Decision struct {
	Step    string
	Text    string // the expression
	Decided string // true or false, as the journal says; empty: it was not asked in this round
	Row     int64  // the journal row that says so
	At      core.Instant
	Terms   []Term // with their values at that row
	Failed  string // why it has no value
}

// Decisions are the conditions of a task's steps in its round, as they were decided. The values are computed again from
// what the journal has up to that row: the decision is the journal's own.
func (c *Cache) Decisions(plan *core.Plan, saved *core.Saved) ([]Decision, error) {
	program, err := c.Program(plan)
	if err != nil || program == nil {
		return nil, err
	}
	all := make([]Decision, len(plan.Steps))
	player := core.Play(plan, saved)
	round := 0
	for i := range saved.Journal {
		r := &saved.Journal[i]
		if _, err := player.Next(); err != nil {
			return nil, err
		}
		if r.Round != round {
			round, all = r.Round, make([]Decision, len(plan.Steps))
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
		all[step] = Decision{Decided: decided, Row: r.Seq, At: r.At, Terms: e.Terms, Failed: e.Failed}
	}
	var shown []Decision
	for i := range plan.Steps {
		if plan.Steps[i].When == "" {
			continue
		}
		all[i].Step, all[i].Text = plan.Steps[i].Name, plan.Steps[i].When
		shown = append(shown, all[i])
	}
	return shown, nil
}

package replay

import (
	"fmt"

	"duly.dev/duly/internal/core"
)

// Parting is the first row at which two tasks of one plan part.
type Parting struct {
	Same int64  // rows that tell the same in both
	A, B *Frame // the first that differ; nil: the task has no such row
}

// Diff finds where two tasks part. Rows tell the same when the same step came to the same end and led to the same next
// command; times, actors, ids and texts of failures do not count. Error: they are of different plans.
func Diff(p *core.Plan, a, b *core.Saved) (Parting, error) {
	if a.Row.Type != b.Row.Type || a.Row.PlanVersion != b.Row.PlanVersion {
		return Parting{}, fmt.Errorf("task %s is of plan %s version %d, task %s of plan %s version %d: only tasks of one plan can be compared",
			core.QuoteShort(a.Row.ID), a.Row.Type, a.Row.PlanVersion, core.QuoteShort(b.Row.ID), b.Row.Type, b.Row.PlanVersion)
	}
	var parting Parting
	for int(parting.Same) < min(len(a.Journal), len(b.Journal)) && same(&a.Journal[parting.Same], &b.Journal[parting.Same]) {
		parting.Same++
	}
	for _, side := range []struct {
		saved *core.Saved
		to    **Frame
	}{{a, &parting.A}, {b, &parting.B}} {
		if parting.Same >= int64(len(side.saved.Journal)) {
			continue
		}
		var err error
		if *side.to, err = one(p, side.saved, parting.Same+1); err != nil {
			return Parting{}, err
		}
	}
	return parting, nil
}

func same(a, b *core.Record) bool {
	return a.Kind == b.Kind && a.State == b.State && a.Round == b.Round && a.Step == b.Step && a.StepStatus == b.StepStatus &&
		a.Attempt == b.Attempt && a.Code == b.Code && a.Next == b.Next && a.NextAttempt == b.NextAttempt && a.Undo == b.Undo
}

package core

// NextDue is the earliest instant at which something of the task can be
// overdue: the complete-by of the command out, or the wait that is on, or the
// task's own deadline. The zero Instant means that the task has ended.
func (t *Task) NextDue(p *Plan) Instant {
	if t.State.Ended() {
		return 0
	}
	if i := t.Out(); i >= 0 {
		return t.Steps[i].Due
	}
	if t.State == StateUndoing {
		if i := t.nextUndo(p); i >= 0 {
			s := &t.Steps[i]
			if s.Status == StepUndoing {
				return max(s.Quiet, s.Due)
			}
			return max(s.Quiet, t.UpdatedAt)
		}
		return t.UpdatedAt
	}
	if i := t.nextStep(p); i >= 0 && t.WaitsFor == "" && t.Steps[i].Due > 0 {
		return min(t.Steps[i].Due, t.Deadline)
	}
	return t.Deadline
}

// nextStep is the first step that waits and may run now, or -1 when all are done.
func (t *Task) nextStep(p *Plan) int {
	for i := range t.Steps {
		if t.Steps[i].Status == StepWaiting && t.ready(p, i) {
			return i
		}
	}
	return -1
}

func (t *Task) ready(p *Plan, i int) bool {
	for _, a := range p.Steps[i].After {
		if t.Steps[a].Status != StepDone {
			return false
		}
	}
	return true
}

// nextUndo is the last step that may have left an effect, or -1.
func (t *Task) nextUndo(p *Plan) int {
	for i := len(t.Steps) - 1; i >= 0; i-- {
		if t.Steps[i].Dirty && p.Steps[i].Undoable {
			return i
		}
	}
	return -1
}

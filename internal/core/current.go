package core

// Current returns the step that the task is at: the one whose command is out,
// else, while processing, the one whose next attempt it waits for. -1: none.
func (t *Task) Current(p *Plan) int {
	if i := t.Out(); i >= 0 {
		return i
	}
	if t.State == StateProcessing && p != nil {
		return t.nextStep(p)
	}
	return -1
}

// Parked returns the step that a parked task is to start when its agent has room; -1: it is not parked for that.
func (t *Task) Parked(p *Plan) int {
	if t.State != StatePending || t.WaitsFor == "" || p == nil {
		return -1
	}
	for i, n := range t.ahead(p) {
		if n.verb == verbBegin && p.Steps[i].Agent == t.WaitsFor {
			return i
		}
	}
	return -1
}

// room is the agent at which a task that is parked waits for room for the first step that may begin at an instant; empty: none may.
func (t *Task) room(p *Plan, at Instant) string {
	for i, n := range t.ahead(p) {
		if n.verb == verbBegin && t.Steps[i].kind == kindCall && n.when <= at {
			return p.Steps[i].Agent
		}
	}
	return ""
}

// Waits are the steps for which a parked task waits at its agent.
func (t *Task) Waits(p *Plan) StepSet {
	var steps StepBuilder
	if t.State != StatePending || p == nil {
		return steps.Set()
	}
	for i, n := range t.ahead(p) {
		if n.verb == verbBegin && p.Steps[i].Agent == t.WaitsFor {
			steps.Add(i)
		}
	}
	return steps.Set()
}

// begunAny reports whether a step has begun in this round.
func (t *Task) begunAny() bool {
	for i := range t.Steps {
		if t.Steps[i].begun || t.Steps[i].Status != StepWaiting {
			return true
		}
	}
	return false
}

// Active reports whether the owner holds the task in memory, unless it Rests: a command is out, or a backoff or a grace is on.
func (t *Task) Active() bool {
	return t.State == StateProcessing || t.State == StateUndoing
}

// Rests reports whether a task that is processing need not be in its owner's memory: it waits for the children of an each, and
// for nothing that the owner knows of alone. What else it waits for the supervisor asks about, as of a pending task.
func (t *Task) Rests(p *Plan) bool {
	if t.State != StateProcessing || p == nil {
		return false
	}
	rests := false
	for i, n := range t.ahead(p) {
		switch s := &t.Steps[i]; {
		case n.verb == verbWork && s.kind == kindEach && s.Status == StepRunning:
			rests = true
		case s.active(n.verb, t.UpdatedAt), n.verb == verbBegin && s.Due <= t.UpdatedAt: // the latter waits for room
			return false
		}
	}
	return rests
}

// Blocked are the steps that may begin at an instant and wait for room at their agents, of a task that
// the owner holds: it claims the task when one has room.
func (t *Task) Blocked(p *Plan, at Instant) StepSet {
	var steps StepBuilder
	if t.State != StateProcessing || p == nil {
		return steps.Set()
	}
	for i, n := range t.ahead(p) {
		if s := &t.Steps[i]; n.verb == verbBegin && s.kind == kindCall && s.Awaits == 0 && s.Due <= at {
			steps.Add(i)
		}
	}
	return steps.Set()
}

package core

// Forward: which steps begin, and what a task is when none can.

// ready reports whether all that step i comes after is done, or not wanted.
func (t *Task) ready(p *Plan, i int) bool {
	for _, a := range p.Steps[i].After {
		if !t.Steps[a].Status.over() {
			return false
		}
	}
	return true
}

// over reports whether all steps are.
func (t *Task) over() bool {
	for i := range t.Steps {
		if !t.Steps[i].Status.over() {
			return false
		}
	}
	return true
}

// workUntil is the instant from which on no do begins. No do gets a later complete-by either: see tryUntil.
func (t *Task) workUntil(p *Plan) Instant { return t.Deadline.Add(-p.UndoReserve) }

// beginnable reports whether step i, which waits, has all that it comes after. It may still have to wait for its
// next attempt or for room, and does not begin while the task stops. Where steps are done again, because the
// database went back or an edit voided an answer, a step may be done whose own predecessors are open: then ready,
// which looks at the direct ones, is not enough, and nothing that follows step i may be at work by the result that
// is about to change.
func (t *Task) beginnable(p *Plan, i int) bool {
	return t.ready(p, i) && (t.WentBackAt == 0 && !t.Reopened || !t.earlierOpen(p, i) && !t.laterOut(p, i))
}

// earlierOpen reports whether a step that step i comes after, directly or through others, is to be done again: the
// database went back, or an answer is void.
func (t *Task) earlierOpen(p *Plan, i int) bool {
	before := p.Ancestors(i)
	for j := range i {
		if before.Has(j) && !t.Steps[j].Status.over() {
			return true
		}
	}
	return false
}

// laterOut reports whether a step that comes after step i is at work: i is to be done again.
func (t *Task) laterOut(p *Plan, i int) bool {
	return t.anyAfter(p, i, func(s *StepState) bool { return s.Out != 0 })
}

// stopping reports whether nothing more begins, and the task goes to error when nothing is at work any more.
func (t *Task) stopping(p *Plan) bool {
	for i := range t.Steps {
		if t.stops(p, i) {
			return true
		}
	}
	return false
}

// stops reports whether it does because of step i.
func (t *Task) stops(p *Plan, i int) bool {
	s := &t.Steps[i]
	if s.Status == StepFailed && (p.Steps[i].OnExhausted == PolicyError || p.Steps[i].OnExhausted == PolicyWait) {
		return true
	}
	return s.Left != "" && p.Steps[i].OnExhausted == PolicySkip
}

// skips reports whether the effect of step i is undone so that the task can go on without it. Until that is done
// the step is not over, and nothing that comes after it begins.
func (t *Task) skips(p *Plan, i int) bool {
	s := &t.Steps[i]
	return (s.Status == StepFailed || s.Status == StepUndoing) && p.Steps[i].OnExhausted == PolicySkip && t.openUndo(p, i)
}

// forward begins every step that may begin now.
func (d *decision) forward() {
	t := d.t
	if t.StartAt > d.at && !d.ev.NoTime {
		t.State, t.WaitsFor = StatePending, "" // if it was for its plan, that is known now
		return
	}
	late := d.at >= t.workUntil(d.p) || d.ev.NoTime
	for i, n := range t.ahead(d.p) { // a step comes after earlier ones alone, so that one look at each is enough
		switch {
		case late && n.ends:
			d.expire()
		case n.verb == verbBegin:
			d.tryBegin(i)
		case n.verb == verbUndo:
			d.tryUndo(i)
		}
		if t.State != StateProcessing {
			return
		}
	}
	if r := d.row(); r.Next < 0 || t.Steps[r.Next].kind != kindCall { // else it is at work
		d.settle()
	}
}

// expire lets the task be undone because its time for work is over.
func (d *decision) expire() {
	switch d.row().Kind {
	case KindUndoFailed, KindUndoOverdue, KindUndoUnserved, KindLate, KindUndoLate: // their reasons are about the undo
		r := d.another(KindExpired, -1)
		r.noteDeadline()
		d.begin(&r, StateUndoing)
	default:
		d.row().noteDeadline()
		d.t.State = StateUndoing
	}
}

// tryBegin begins step i unless it has to wait for its next attempt or for room at its agent. The order of the
// cases counts. A key that is too old ends the step even in its backoff. A retry of a wait looks for no room: its
// step has its place (Occupies). The condition is asked before the room, so that a step which is not wanted waits
// for no agent. And a step gives up because of a breaker only where nothing but the breaker keeps it.
func (d *decision) tryBegin(i int) {
	s, ps := &d.t.Steps[i], &d.p.Steps[i]
	first := !s.begun
	switch {
	case d.t.keyOver(d.p, i, d.at):
		d.endKey(i)
		return
	case s.Due > d.at:
		return
	case s.Awaits != 0:
		d.again(i)
		return
	case first && ps.When != "" && !d.wanted(i):
		return
	case s.kind == kindCall && d.backTooLate(i):
		d.giveUpWaiting(i)
		return
	// Of steps that may begin, the first that finds no room is what the task is parked for: see settle.
	case s.kind == kindCall && (d.ev.Full.Has(i) || d.ev.Few.Has(i) && d.beganAt(ps.Agent)):
		if d.full == 0 {
			d.full = i + 1
		}
		return
	case ps.Least > 0 && d.at.Add(ps.Least) > d.t.workUntil(d.p):
		r := d.another(KindExpired, i)
		r.Reason = "the task's deadline leaves step " + ps.Name + " less than the " + ps.Least.String() + " that it needs"
		d.begin(&r, StateUndoing)
		return
	}
	switch s.kind {
	case kindWait:
		d.beginWait(i)
	case kindSignal:
		d.beginSignal(i)
	case kindEach:
		d.beginEach(i, first)
	default:
		if first && ps.Input != "" {
			given, err := d.ask().Input(i)
			if err != nil {
				d.failBegin(i, err)
				return
			}
			d.give(given)
		}
		d.issue(i, false)
	}
}

// beganAt reports whether a do for an agent leaves by this event already.
func (d *decision) beganAt(agent string) bool {
	for i := range d.out.Effects {
		if x := &d.out.Effects[i]; x.Kind == EffectDo && d.p.Steps[x.Step].Agent == agent {
			return true
		}
	}
	return false
}

// give opens the row that has the own input of the step that begins next.
func (d *decision) give(given []byte) {
	r := d.another(KindStarted, -1)
	r.Input = given
	d.begin(&r, d.t.State)
}

// wanted asks whether the condition of step i is true; if it is not, the step is skipped.
func (d *decision) wanted(i int) bool {
	yes, err := d.ask().When(i)
	if err != nil {
		d.failBegin(i, err)
		return false
	}
	if !yes {
		r, state := d.another(KindSkipped, i), d.t.State
		r.StepStatus, r.Reason = StepSkipped, "its condition is false"
		if d.t.openUndo(d.p, i) { // after an edit, or because the database went back
			r.StepStatus, state = StepFailed, StateUndoing
			r.Reason = "the condition of step " + d.p.Steps[i].Name + " is false now, and it may have an effect"
		}
		d.begin(&r, state)
	}
	return yes
}

// failBegin is the end of a step that could not begin, because an expression of it failed. That is final: asked
// again of the same input and results, the expression would fail again.
func (d *decision) failBegin(i int, err error) {
	r := d.another(KindRefused, i)
	r.Code, r.Error = CodeRefused, cut(err.Error())
	state := d.failing(&r, i, true)
	d.begin(&r, state)
}

// beginEach begins the children of the elements of a list. The list is asked for once and kept in the row: further
// attempts go on with it, because children that were born are its elements by their places. An empty list is done
// at once: no child would end it.
func (d *decision) beginEach(i int, first bool) {
	if !first {
		d.issue(i, false)
		return
	}
	list, n, err := d.ask().Elements(i)
	if err != nil {
		d.failBegin(i, err)
		return
	}
	if n == 0 {
		r := d.another(KindDone, i)
		r.StepStatus, r.Result = StepDone, []byte(`{"done":0,"failed":0}`)
		d.begin(&r, d.t.State)
		return
	}
	d.give(list)
	d.issue(i, false)
}

// settle says what the task is when nothing more can begin now: processed; processing, while its owner has
// something out or a timer to keep in memory; in error, once it stops and no children are at work any more;
// otherwise pending, and in no owner's memory.
func (d *decision) settle() {
	t, stopping := d.t, d.t.stopping(d.p)
	over, active, children := t.over(), false, false
	for i, n := range t.ahead(d.p) {
		s := &t.Steps[i]
		// The open row's command is put out when the row is closed. Until then its step looks like one that waits.
		if n.verb == verbBegin && d.open && i == d.row().Next { // the open row begins it
			if n.verb = verbWork; s.kind.passive() {
				continue
			}
		}
		active, children = active || s.active(n.verb, d.at), children || n.verb == verbWork
	}
	switch {
	case over:
		d.processed()
	case active:
	case stopping && !children:
		t.State = StateError
		if left := t.left(d.p); left != "" {
			d.row().Reason = cut(left)
		}
	default:
		t.State = StatePending
	}
	if t.State != StatePending {
		return
	}
	// A task that is parked is found and claimed by the agent at which it waits for room. What it was parked for before, of
	// another version perhaps, counts no more.
	if t.WaitsFor = ""; d.full > 0 && !stopping {
		t.WaitsFor = d.p.Steps[d.full-1].Agent
	}
}

// processed ends a task whose steps are all done or not wanted. If the plan's result cannot be computed the task
// goes to error with all its effects in place: an operator undoes or resolves it.
func (d *decision) processed() {
	if d.p.Result == "" {
		d.t.State = StateProcessed
		return
	}
	result, err := d.ask().Result()
	r := d.another(KindResult, -1)
	r.Result = result
	state := StateProcessed
	if err != nil {
		r.Result, r.Error, state = nil, cut(err.Error()), StateError
	}
	d.begin(&r, state)
}

package core

import "fmt"

// A task that is moved to another version of its plan keeps its journal: rows name steps by their place in the list. So it
// may be moved only if every step that has begun is the same in both versions, in the same place, after the same steps;
// then the rows before mean by the new version what they meant by the old one, and a replay needs the new version alone.
// The row `migrated` lists the steps that have begun: what replayed rows made of others is forgotten there.

// touched reports whether anything of the step has happened in this round.
func (s *StepState) touched() bool {
	return s.begun || s.Status != StepWaiting || s.Attempt != 0 || s.Out != 0 || s.Due != 0 || s.Effect != StepEffect{} || s.Awaits != 0 ||
		s.Since != 0 || s.Left != "" || s.own != nil || s.Result != nil || s.kind == kindSignal && s.Used != 0
}

// Movable says whether a task may be moved from one version of its plan to another; the error says why it may not.
func Movable(from, to *Plan, t *Task) error {
	no := func(format string, args ...any) error { return fmt.Errorf(format, args...) }
	switch {
	case t.State != StatePending && t.State != StateProcessing && t.State != StateError:
		return no("only a task that is pending, processing or in error can be moved to another version")
	case from.Name != to.Name:
		return no("it is of type %s, and the version is of plan %s", from.Name, to.Name)
	case from.Version == to.Version:
		return no("it is of version %d already", to.Version)
	case t.Round > 0:
		return no("it was undone and began again, and its earlier rounds are of version %d", from.Version)
	case t.WentBackAt != 0:
		return no("the database went back since it began, and what it has done is not known")
	case len(t.Input) > to.InputMax:
		return no("its input has %d bytes, the limit of version %d is %d", len(t.Input), to.Version, to.InputMax)
	}
	for i := range t.Steps {
		if err := sameStep(from, to, t, i); err != nil {
			return err
		}
		// Only of a step that was ready can there be rows, and those must have a place. Where an answer is void, one that
		// was ready waits for it again.
		if i >= len(to.Steps) && (t.Reopened || t.ready(from, i)) {
			return no("step %s may have begun, and version %d has only %d steps", from.Steps[i].Name, to.Version, len(to.Steps))
		}
	}
	return nil
}

// sameStep says why a step that has begun is not the same in both versions; nil: it is, or it has not begun.
func sameStep(from, to *Plan, t *Task, i int) error {
	s, a := &t.Steps[i], &from.Steps[i]
	if !s.touched() {
		return nil
	}
	differs := func(what string) error {
		return fmt.Errorf("step %s has begun, and version %d has another %s for it", a.Name, to.Version, what)
	}
	at := i
	if i >= len(to.Steps) || to.Steps[i].Name != a.Name {
		at = to.StepIndex(a.Name)
	}
	switch {
	case at < 0:
		return fmt.Errorf("step %s has begun, and version %d has none of that name", a.Name, to.Version)
	case at != i:
		return fmt.Errorf("step %s has begun as number %d of the list, and is number %d in version %d: steps that are new go behind those that may have begun", a.Name, i+1, at+1, to.Version)
	}
	b := &to.Steps[i]
	switch {
	case a.Kind != b.Kind:
		return differs("kind")
	case a.Agent != b.Agent:
		return differs("agent")
	case a.Undoable != b.Undoable:
		return differs("undoable")
	case a.Child != b.Child:
		return differs("child")
	case len(s.Result) > b.ResultMax:
		return differs("result_max, less than its result has,")
	case !sameSet(a.After, b.After):
		return differs("after")
	case s.Result != nil && a.Schema != b.Schema: // by which its answer was checked, and expressions rely on it
		return differs("schema")
	case a.OnExhausted != b.OnExhausted && (s.Status == StepFailed || s.Status == StepUndoing):
		return differs("on_exhausted")
	}
	return nil // what it comes after has begun as well, or was not wanted, so that the places are of the same steps
}

// sameSet reports whether two lists have the same elements.
func sameSet(a, b []int) bool {
	return StepSetOf(a...).Equal(StepSetOf(b...))
}

// migrate moves the task to the version that the event brings. From then on that is its plan.
func (d *decision) migrate() error {
	to := d.ev.Plan
	if to == nil {
		return d.notAllowed(fmt.Sprintf("version %d of its plan is not known", d.ev.Version))
	}
	if err := Movable(d.p, to, d.t); err != nil {
		return d.notAllowed(err.Error())
	}
	r := d.record(KindMigrated, -1)
	r.Result = d.t.movedList(d.p)
	said := r.Reason
	if r.Reason = fmt.Sprintf("from version %d to version %d of its plan", d.p.Version, to.Version); said != "" {
		r.Reason = cut(r.Reason + ": " + said)
	}
	// From here on the event is decided by the new version: finish begins what that has next.
	d.p, d.t.PlanVersion = to, to.Version
	d.t.resize(to)
	d.out.Row = true // it names the version
	// A task in error stays there: what goes on by the new version is its resubmission.
	if d.t.State.Ended() {
		d.t.applyRecord(&r)
		d.out.Records = append(d.out.Records, r)
		return nil
	}
	d.finish(&r, d.t.goesOn())
	return nil
}

// movedList is a JSON array of two: the places of the steps that have begun, and those of them whose answers are void.
func (t *Task) movedList(p *Plan) []byte {
	var begun StepBuilder
	for i := range t.Steps {
		if t.Steps[i].touched() {
			begun.Add(i)
		}
	}
	return fmt.Appendf(nil, "[%s,%s]", stepList(begun.Set()), stepList(t.voidAnswers(p)))
}

// stepList is a JSON array of the places of steps.
func stepList(steps StepSet) []byte {
	list := []byte("[")
	steps.Each(func(i int) {
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = fmt.Append(list, i)
	})
	return append(list, ']')
}

// stepSet reads a stepList; nil: none.
func stepSet(list []byte) StepSet {
	var steps StepBuilder
	eachElement(list, func(from, to int) {
		i := 0
		for _, c := range list[from:to] {
			i = i*10 + int(c-'0')
		}
		steps.Add(i)
	})
	return steps.Set()
}

// resize gives the task the steps of another version. Those that have begun stay.
func (t *Task) resize(to *Plan) {
	steps := newSteps(to)
	for i := range min(len(steps), len(t.Steps)) {
		if t.Steps[i].touched() {
			steps[i] = t.Steps[i]
		}
	}
	t.Steps = steps
}

// applyMigrated makes the task one of another version: see resize, of which a replay has only what the row says.
func (t *Task) applyMigrated(r *Record) {
	var lists [2]StepSet
	n := 0
	eachElement(r.Result, func(from, to int) {
		lists[n], n = stepSet(r.Result[from:to]), 1
	})
	for i := range t.Steps {
		if !lists[0].Has(i) {
			t.Steps[i] = StepState{kind: t.Steps[i].kind}
		}
	}
	t.applyVoid(lists[1])
}

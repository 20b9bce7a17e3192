package core

import "cmp"

// Keys that grow old. A service remembers the key of a call for a while, which the plan says (key_lasts), and after that the
// same key has a second effect. So a key is not used for longer: no attempt leaves, or is waited for, after its time, which
// begins with the first attempt that may have had an effect. A do is then probed, where the plan says so, or has failed with an
// unknown effect: it is undone, or a person decides. An undo is never probed: a probe says whether the effect of the do
// stands, which what gives it back elsewhere leaves as it was. So it gives up. A person who has looked at the service says
// what is there ([Event.Found]); from then on the key is known to be free.
//
// The age counts from the first use, not from the last: services keep a key from when they saw it first. A new key instead
// of an old one would leave the old effect standing. While no agent has heard a command its key is unused: the age of a wait
// for an agent begins at its end or, where two owners have tried, at its start. An agent may call its service until the
// grace after a complete-by, and after a takeover OwnedFor more: so much longer the service has to remember.

// keyEnds is when the key of the do of step i is too old to be used; 0: no attempt may have had an effect under it.
func (t *Task) keyEnds(p *Plan, i int) Instant {
	s := &t.Steps[i]
	if s.kind != kindCall || s.Used == 0 || s.Effect.unused() {
		return 0
	}
	return s.Used.Add(p.Steps[i].KeyLasts)
}

// undoKeyEnds is keyEnds of the undo: 0 while no agent may have heard of it.
func (t *Task) undoKeyEnds(p *Plan, i int) Instant {
	s := &t.Steps[i]
	used := s.UndoUsed
	if used == 0 && s.undoAwaits() && s.Effect.Open != 0 { // a former owner has tried too
		used = s.Since
	}
	if s.kind != kindCall || used == 0 {
		return 0
	}
	return used.Add(p.Steps[i].KeyLasts)
}

// keyUntil is until when the service remembers the key by which step i is tried again, or is being undone; 0: it is not, or no
// attempt may have had an effect.
func (t *Task) keyUntil(p *Plan, i int) Instant {
	switch t.Steps[i].Status {
	case StepWaiting, StepRunning, StepFailed:
		return t.keyEnds(p, i)
	case StepUndoing:
		return t.undoKeyEnds(p, i)
	}
	return 0
}

// undoEnd is when the undo of step i gives up, as far as the journal knows.
func (t *Task) undoEnd(p *Plan, i int) Instant {
	s, end := &t.Steps[i], t.Steps[i].Since.Add(p.Steps[i].undoPatience())
	if s.kind != kindCall || s.UndoUsed == 0 {
		return end
	}
	return min(end, s.UndoUsed.Add(p.Steps[i].KeyLasts))
}

// undoOld reports whether no attempt of the undo of step i may leave any more.
func (t *Task) undoOld(p *Plan, i int, at Instant) bool {
	ends := t.undoKeyEnds(p, i)
	return ends != 0 && at >= ends
}

// tryUntil is the complete-by of an attempt of step i that leaves now: while its key is remembered, which of the
// first attempt is counted from now. Waits and children have no key. A do also ends with the time for work; an undo
// may outlast the deadline.
func (d *decision) tryUntil(i int, undo bool) Instant {
	ps := &d.p.Steps[i]
	until, ends := min(d.at.Add(ps.CompleteBy), d.t.workUntil(d.p)), d.t.keyEnds(d.p, i)
	if undo {
		until, ends = d.at.Add(ps.UndoCompleteBy), d.t.undoKeyEnds(d.p, i)
	}
	switch {
	case d.t.Steps[i].kind != kindCall:
		return until
	case ends == 0:
		ends = d.at.Add(ps.KeyLasts)
	}
	return min(until, ends)
}

// keyOver reports whether step i is to be done and its key is too old for that.
func (t *Task) keyOver(p *Plan, i int, at Instant) bool {
	ends := t.keyEnds(p, i)
	return ends != 0 && at >= ends && t.Steps[i].Status == StepWaiting
}

// undoKeyOver is the first step that is to be undone and whose key is too old for that; -1: there is none. Its turn
// does not matter, nor whether its undo waits: an attempt that is out has its answer, or its complete-by, first.
func (t *Task) undoKeyOver(p *Plan, at Instant) int {
	if t.working() { // its answer, or its complete-by, comes first
		return -1
	}
	for i := range t.Steps {
		if t.undoOld(p, i, at) && t.openUndo(p, i) && !t.Steps[i].undoOut() {
			return i
		}
	}
	return -1
}

// endKey ends a do that must not be tried again, because its service may have forgotten the key: its agent is asked whether it
// took effect, or else the step fails.
func (d *decision) endKey(i int) {
	r := d.another(KindStarted, i)
	if d.probe(&r, i) {
		d.begin(&r, d.t.State)
		// No command was silent: the question about the key has the number of this row, which begin gave.
		d.out.Effects[len(d.out.Effects)-1].Seq = r.Seq
		return
	}
	r.Kind, r.Reason = KindExpired, cut(d.t.oldKey(d.p, i, false))
	d.begin(&r, d.failing(&r, i, true))
}

// endUndoKey lets the undo of a step give up whose key is too old. A task that goes forward stops then: the step is
// optional, and what it has done can neither stay nor be undone without a person.
func (d *decision) endUndoKey(i int) {
	r := d.another(KindUndoGaveUp, i)
	r.StepStatus, r.Error = StepUndoing, cut(d.t.oldKey(d.p, i, true))
	if d.t.State == StateProcessing {
		d.endWaits(i) // the task stops: see settle
	}
	d.begin(&r, d.t.State)
}

// oldKey says what is to be known of a key that is too old.
func (t *Task) oldKey(p *Plan, i int, undo bool) string {
	of, first := "step ", t.Steps[i].Used
	if undo {
		of, first = "the undo of step ", cmp.Or(t.Steps[i].UndoUsed, t.Steps[i].Since)
	}
	return "the key of " + of + p.Steps[i].Name + " was first used at " + stamp(first) + ", and its service remembers keys for " +
		p.Steps[i].KeyLasts.String() + ": whether that took effect is not known any more"
}

// found takes what a person says of the service of the step from which a task in error starts again: that nothing is there.
// Without that no key is used that is too old, unless the agent can be asked.
func (d *decision) found(i int) error {
	s := &d.t.Steps[i]
	switch {
	case d.ev.Found == ProbeDone:
		return d.notAllowed("what is there needs no other try: accept it with its result")
	case d.ev.Found == ProbeAbsent && (d.at < s.Effect.Open || d.ev.Looked != 0 && d.ev.Looked < s.Effect.Open):
		return d.notAllowed("its do may still act until " + stamp(s.Effect.Open))
	case d.ev.Found == "" && !d.p.Steps[i].Probe && d.t.keyEnds(d.p, i) != 0 && d.at >= d.t.keyEnds(d.p, i):
		return d.notAllowed(d.t.oldKey(d.p, i, false) + ". Look there, then accept it with its result, or resubmit it with found absent")
	}
	return nil
}

// foundUndone is found of an undo: without a person's word it is not asked for where nothing could be undone.
func (d *decision) foundUndone() error {
	if !d.t.State.Ended() || d.ev.Kind != EventUndo || d.ev.ByParent {
		return nil
	}
	if d.ev.Found == ProbeAbsent {
		return d.notAllowed("what is not there needs no undo: resolve it as undone")
	}
	old, open, looked := -1, false, d.at
	if d.ev.Looked != 0 {
		looked = d.ev.Looked
	}
	for i := range d.t.Steps {
		switch quiet := d.t.undoKeyEnds(d.p, i).Add(d.p.Grace + OwnedFor); {
		case !d.undoes(i):
		case !d.t.undoOld(d.p, i, d.at):
			open = true
		case d.ev.Found == ProbeDone && min(d.at, looked) < quiet:
			return d.notAllowed("the undo of step " + d.p.Steps[i].Name + " may still act until " + stamp(quiet))
		default:
			old = i
		}
	}
	if d.ev.Found == "" && old >= 0 && !open {
		return d.notAllowed(d.t.oldKey(d.p, old, true) + ". Look there, then resolve the task, or undo it with found done")
	}
	return nil
}

// undoes reports whether the undo that is asked for begins that of step i.
func (d *decision) undoes(i int) bool {
	s := &d.t.Steps[i]
	if d.ev.Step != "" {
		return d.p.Steps[i].Name == d.ev.Step
	}
	return s.Effect.Possible() && d.p.Steps[i].Undoable && s.Status != StepUndone
}

// noteFound writes the rows of a person's word, before the row of the request: it finds the key free already. While
// the key of an undo is not too old it says nothing: an undo may be at work. step is the one that a resubmit starts
// from; -1: it is an undo.
func (d *decision) noteFound(step int) {
	for i := range d.t.Steps {
		undo := d.ev.Found == ProbeDone && d.t.State.Ended() && d.undoes(i) && d.t.undoOld(d.p, i, d.at)
		if d.ev.Found == "" || i != step && !undo {
			continue
		}
		r := d.record(KindProbed, i)
		if r.Result = d.t.Steps[i].Result; !undo {
			r.Code = CodeAbsent
		}
		d.t.applyRecord(&r)
		d.out.Records = append(d.out.Records, r)
	}
}

// applyFound keeps that a person has looked: the key of the do, or of the undo, is free. ended: the task had before, so that no
// agent has said it.
func (s *StepState) applyFound(r *Record, ended bool) {
	if r.Code == CodeAbsent {
		s.Used = 0
	} else if r.Code == 0 && ended {
		s.UndoUsed = 0
	}
}

// applyUse keeps when a key was first used of a step that has waited for its agent: its retries have no rows, and one that
// was answered, or has been heard, left a moment before the row. Of what two owners have sent that is not known, nor of a
// retry whose row had to follow one that came after its time: then it counts from the start of the wait, at the latest.
func (s *StepState) applyUse(r *Record, born Instant) {
	heard := r.At.Add(-heardAfter)
	if r.Kind == KindStarted && r.Due < heard {
		heard = cmp.Or(s.Since, born)
	}
	switch {
	case s.Awaits == 0 || s.Said != 0:
	case r.EffectsPossibleUntil != 0 && s.Status == StepUndoing:
		s.UndoUsed = cmp.Or(s.UndoUsed, s.Since)
	case r.EffectsPossibleUntil != 0 || r.Code == 0 && (r.Kind == KindUnserved || r.Kind == KindUndoUnserved || r.Kind == KindUndoGaveUp):
	case s.Status == StepUndoing:
		s.UndoUsed = cmp.Or(s.UndoUsed, heard)
	case !s.Effect.Possible():
		s.Used = heard
	}
}

package core

// wentBack notes that the database forgot a part of what it had committed, at the
// event's Until: it failed over to a stale standby, or was restored. What ran in the
// time that is lost has the same keys, so to do it again has one effect, and a step that
// was undone in that time refuses it: every step is done again, also those whose results
// are known. A task that is undone must undo every step, also those that this journal
// never started: commands of the lost time may be at work until their complete-by and
// the grace.
//
// A step that an operator accepted can neither be done again, which would do it twice, nor be taken for done: it may
// have been undone. So its task is undone.
//
// For a task that has ended the event is stale: what takes it up again notes it, by [Event.WentBack].
func (d *decision) wentBack() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	d.noteWentBack(d.ev.Until, d.ev.Actor)
	if step := d.t.acceptedStep(d.p); step >= 0 && d.t.State != StateUndoing {
		ev := *d.ev
		ev.Kind, ev.Reason = EventUndo, d.acceptedAndLost(step)
		d.ev = &ev
		return d.undo()
	}
	if step := d.t.doneChildren(); step >= 0 && d.t.State != StateUndoing {
		ev := *d.ev
		ev.Kind = EventUndo
		ev.Reason = "step " + d.p.Steps[step].Name + " has child tasks, and the database went back since: whether they were undone meanwhile is not known"
		d.ev = &ev
		return d.undo()
	}
	if d.t.Active() && !d.t.anyOut() && d.t.nextWake(d.p, d.at) == 0 {
		d.wakeAt(d.at) // what was between two tries now waits for steps before it
	}
	d.touchRow() // of a task that is being undone another step may be next
	return nil
}

// noteWentBack writes the row by which the journal knows of it, at the time of the event and by the owner.
func (d *decision) noteWentBack(at Instant, owner string) {
	r := d.record(KindWentBack, -1)
	r.Actor, r.Reason = owner, ""
	r.EffectsPossibleUntil = d.quietBefore(at)
	d.t.applyRecord(&r)
	d.out.Records = append(d.out.Records, r)
}

// noteBefore is noteWentBack for a request that takes up a task that has ended.
func (d *decision) noteBefore() {
	if d.ev.WentBack != 0 {
		d.noteWentBack(d.ev.WentBack, d.ev.Node)
	}
}

// acceptedStep is a step that is done by an operator's word, and that an undo of the task undoes; -1: there is none.
func (t *Task) acceptedStep(p *Plan) int {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.ByHand && s.Status == StepDone && p.Steps[i].Undoable {
			return i
		}
	}
	return -1
}

// doneChildren is a step whose children are done, and so may have been undone; -1: there is none.
func (t *Task) doneChildren() int {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.kind.parent() && s.Status == StepDone {
			return i
		}
	}
	return -1
}

func (d *decision) acceptedAndLost(step int) string {
	return "step " + d.p.Steps[step].Name + " was accepted, and the database went back since: whether it was undone meanwhile is not known"
}

// quietBefore is when the last command of the time that is lost, which ended at that instant, can take no effect any
// more.
func (d *decision) quietBefore(until Instant) Instant {
	var quiet Instant
	for i := range d.p.Steps {
		if d.p.Steps[i].Kind != CallStep {
			continue
		}
		quiet = max(quiet, until.Add(d.p.Steps[i].CompleteBy).Add(d.p.Grace))
	}
	return quiet
}

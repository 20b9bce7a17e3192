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
// have been undone. So its task is undone. So is one whose children are done.
//
// For a task that has ended the event is stale: what takes it up again notes it, by [Event.WentBack].
func (d *decision) wentBack() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	d.noteWentBack(d.ev.Until, d.ev.Actor)
	if why := d.t.lostStep(d.p, false); why != "" && d.t.State != StateUndoing {
		ev := *d.ev
		ev.Kind, ev.Reason = EventUndo, why
		d.ev = &ev
		return d.undo()
	}
	if d.t.State == StatePending && d.t.StartAt <= d.at && d.t.Parked(d.p) < 0 {
		d.t.WaitsFor = d.t.room(d.p, d.at) // a step that is to be done again comes first
	}
	if d.t.Active() && !d.wakeNext() && !d.t.anyOut() {
		d.wakeAt(d.at) // what was between two attempts now waits for steps before it
	}
	d.touchRow() // of a task that is being undone another step may be next, and sooner
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

// lostStep is why a task cannot go on after the database went back: a step of it may have been undone meanwhile and is
// not done again, because an operator accepted it or it has child tasks; empty: there is none. now says that the
// database has gone back since all that is done, else the journal says of which steps it has.
func (t *Task) lostStep(p *Plan, now bool) string {
	for i := range t.Steps {
		s, name := &t.Steps[i], p.Steps[i].Name
		switch {
		case s.Status != StepDone || !now && !s.Effect.lost():
		case s.Effect.byHand() && p.Steps[i].Undoable:
			return "step " + name + " was accepted, and the database went back since: whether it was undone meanwhile is not known"
		case s.kind.parent():
			return "step " + name + " has child tasks, and the database went back since: whether they were undone meanwhile is not known"
		}
	}
	return ""
}

// quietBefore returns when a command that was sent until then, in the time that a restored database has lost, can
// take no effect any more: its complete-by and the grace have passed. Which dos were out is not known, so that the
// longest counts.
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

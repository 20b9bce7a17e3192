package core

// wentBack notes that the database forgot a part of what it had committed, at the
// event's Until: it failed over to a stale standby, or was restored. What ran in the
// time that is lost has the same keys, so to do it again has one effect, and a step that
// was undone in that time refuses it: every step is done again, also those whose results
// are known. A task that is undone must undo every step, also those that this journal
// never started: commands of the lost time may be at work until their complete-by and
// the grace.
//
// For a task that has ended the event is stale.
func (d *decision) wentBack() error {
	if d.t.State.Ended() {
		return d.stale("it has ended")
	}
	r := d.record(KindWentBack, -1)
	r.State = d.t.State
	r.EffectsPossibleUntil = d.quietBefore()
	d.t.beginTransition(&r)
	d.t.completeTransition(&r, d.t.State)
	d.touchRow() // of a task that is being undone another step may be next
	d.out.Records = append(d.out.Records, r)
	return nil
}

// quietBefore is when the last command of the time that is lost can take no effect any
// more.
func (d *decision) quietBefore() Instant {
	var quiet Instant
	for i := range d.p.Steps {
		quiet = max(quiet, d.ev.Until.Add(d.p.Steps[i].CompleteBy).Add(d.p.Grace))
	}
	return quiet
}

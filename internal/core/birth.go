package core

// Birth writes the first record of a new task. The caller has filled in what
// the submission and the owner know (Partition, Number, ID, Type, Input,
// InputHash, ReplyTo, Trace, Labels, Origin, CreatedAt) and Deadline, if the submission
// names one. A nil plan puts the task in error, its input kept. EventWentBack is of a
// submission that may have run before the database went back at ev.Until.
func Birth(p *Plan, t *Task, ev *Event, out *Outcome) {
	out.Reset()
	d := decision{p: p, t: t, ev: ev, out: out, at: ev.At}
	if t.CreatedAt == 0 {
		t.CreatedAt = ev.At
	}
	if p == nil {
		t.PlanVersion = 0 // how the row says that the task has no steps
		r := d.record(KindPoisoned, -1)
		r.Error = cut(ev.Error)
		d.finish(&r, StateError)
		return
	}
	t.PlanVersion = p.Version
	t.Steps = newSteps(p)
	r := d.record(KindSubmitted, -1)
	if ev.Kind == EventWentBack {
		r.Kind, r.EffectsPossibleUntil = KindWentBack, d.quietBefore(ev.Until)
	}
	if r.Deadline = t.Deadline; r.Deadline == 0 {
		r.Deadline = p.DeadlineOf(t, d.at)
		if ev.NoTime && r.Kind == KindSubmitted && p.MissesTurn(max(t.CreatedAt, t.StartAt), d.at) {
			r.Reason = missedTurn
		}
	}
	out.Effects = append(out.Effects, Effect{Kind: EffectReceived})
	d.finish(&r, StateProcessing)
	if t.State == StateProcessing { // one that is parked changes its row when it goes on
		// One that is at work gets so low a bound at once that hardly a step has to lower it: a short task is
		// written into the index of bounds once, and the supervisor's question about a longer one raises it.
		t.Bound = min(t.Bound, ev.At.Add(p.ShortestTimeout()), t.Deadline)
	}
}

// BirthCancelled writes the first and only record of a task that was cancelled
// before it was submitted: it takes the id, so that the submission, when it
// comes, starts nothing.
func BirthCancelled(t *Task, ev *Event, out *Outcome) {
	out.Reset()
	d := decision{t: t, ev: ev, out: out, at: ev.At}
	if t.CreatedAt == 0 {
		t.CreatedAt = ev.At
	}
	t.PlanVersion = 0
	r := d.record(KindCancelled, -1)
	d.finish(&r, StateUndone)
}

package core

import "time"

// Waiting for an agent. A command that no agent takes is no attempt, and its step waits
// until one does: one journal row begins the wait, and the row of what comes next ends
// it. The retries between leave under the number of the first row and are known to the
// owner's memory alone, so that a step no agent serves costs two rows however long it
// takes. docs/decisions/008-attempts.md says why that is safe.

const (
	// heardAfter is how long after a retry left it counts as heard by an agent, unless
	// the server or the agent says otherwise before: half its time at most.
	heardAfter = time.Second
	// OwnedFor is how long ago an owner must have made sure of a partition for a retry to
	// leave. A new owner counts on retries of the old one until then.
	OwnedFor = time.Second
)

// unserved takes back a command that reached no agent. When two owners
// sent a journalled command, one copy may have been heard: then only its answer or its
// complete-by counts.
func (d *decision) unserved() error {
	i := d.answered()
	if i < 0 {
		return d.stale("no command is out under the number")
	}
	s := &d.t.Steps[i]
	switch {
	case !s.answers(d.ev):
		return d.stale("it is about another copy of the command")
	case s.again():
		d.retryLater(i)
		return nil
	case s.Effect.refusedLate():
		return d.stale("an agent has refused the command, after its complete-by")
	case s.Effect.resent():
		return d.stale("the command was sent more than once")
	}
	d.await(i, 0, "no agent listens on "+d.p.Steps[i].Agent)
	return nil
}

// busy takes back a command that an agent cannot take. Of a wait that began with such
// an answer the journal knows enough.
func (d *decision) busy(i int) {
	s := &d.t.Steps[i]
	if s.again() && s.Said != 0 {
		d.retryLater(i)
		return
	}
	d.await(i, d.ev.Code, cut(d.ev.Error))
}

// answers reports whether an event is about the copy that is out. An owner sends a copy when the one before was answered
// or given back, so the others are over. Of what two owners have sent, any copy may be the one.
func (s *StepState) answers(ev *Event) bool {
	return s.Effect.resent() || s.Copy == ev.Copy
}

// await begins a wait. The command counts as no attempt.
func (d *decision) await(i, code int, text string) {
	s := &d.t.Steps[i]
	r := d.record(KindUnserved, i)
	r.Code, r.Error, r.Attempt = code, text, s.Attempt-1
	if s.Status == StepUndoing {
		r.Kind, r.EffectsPossibleUntil = KindUndoUnserved, 0
		d.alert(&r, i)
	} else {
		r.StepStatus, r.EffectsPossibleUntil = StepWaiting, s.Effect.answered(d.quietAfter(i))
	}
	if d.t.State == StateProcessing || s.Status == StepUndoing {
		d.retryAt = d.at.Add(backoff(&d.p.Steps[i], s.Tries+1, d.ev.Rand))
	}
	d.out.Row = true // nothing is due for long: a supervisor that asks would cost another row
	d.finish(&r, d.t.State)
}

// retryLater lets the next retry of a wait leave after a backoff. What was given back is as if it had not left, but
// for the number of its copy: an answer to it that comes yet must not be taken for one to the next.
func (d *decision) retryLater(i int) {
	s := &d.t.Steps[i]
	s.Out, s.Heard = 0, 0
	s.Attempt--
	s.Tries++
	s.Copy++
	s.Due = d.at.Add(backoff(&d.p.Steps[i], s.Tries+1, d.ev.Rand))
	d.wakeNext()
}

// again sends the command of a wait once more, under the number that it has.
func (d *decision) again(i int) {
	s, kind := &d.t.Steps[i], EffectDo
	if s.Status == StepUndoing {
		kind = EffectUndo
	}
	s.Out, s.Due = s.Awaits, d.tryUntil(i, kind == EffectUndo)
	s.Attempt++
	if kind == EffectDo { // "unserved" may be about another copy
		s.Effect.Open = s.Effect.answered(d.quietAfter(i))
	}
	s.Heard = d.at.Add(min(heardAfter, s.Due.Sub(d.at)/2))
	d.out.Effects = append(d.out.Effects, Effect{Kind: kind, Step: i, Attempt: s.Attempt, Seq: s.Out, Copy: s.Copy, At: s.Due, Again: true})
}

// heard ends a wait by the row that makes the retry now out a command like any other:
// it was not given back, so an agent has it.
func (d *decision) heard(i int) {
	s := &d.t.Steps[i]
	r := d.record(KindStarted, i)
	r.At = max(d.t.UpdatedAt, min(d.at, s.Heard)) // however late its owner sees that: see applyUse
	r.Next, r.NextAttempt, r.Undo, r.Due = i, s.Attempt, s.Status == StepUndoing, s.Due
	r.Attempt = s.Attempt
	// The row sends nothing: how often the retry was sent, and by whom, stays as it is known.
	copies := s.Effect.copies
	d.t.applyRecord(&r)
	s.Effect.copies = copies
	d.out.Records = append(d.out.Records, r)
	d.touchRow()
}

// served lets each command that no agent took be tried again at once: the agent is there again. A command that its agent
// refused because it was full keeps its time, or all of them would ask the agent whenever it has answered one.
func (d *decision) served() error {
	waits := false
	for i := range d.t.Steps {
		if s := &d.t.Steps[i]; s.Awaits != 0 && s.Out == 0 && s.Said == 0 {
			s.Due, s.Tries, waits = min(s.Due, d.at), 0, true
		}
	}
	if !waits {
		return d.stale("it waits for no agent")
	}
	return d.wake()
}

// awaiting is a step that waits for its agent and has no retry out, or -1. Several undos
// may wait; it is the last of those that may leave then.
func (t *Task) awaiting() int {
	for i := len(t.Steps) - 1; i >= 0; i-- {
		if s := &t.Steps[i]; s.Awaits != 0 && s.Out == 0 {
			return i
		}
	}
	return -1
}

// Occupies reports whether step i has a place at its agent: its command is out, or waits for the agent and leaves again by
// itself. One that waits behind a step that is to be done again has none: that step may need the same place.
func (t *Task) Occupies(p *Plan, i int) bool {
	s := &t.Steps[i]
	return s.Out != 0 || s.Awaits != 0 && (s.Status == StepUndoing || s.Status == StepWaiting && t.beginnable(p, i) && !t.stopping(p))
}

// Journalled is the step without what only its owner's memory holds: what a replay
// makes of its rows.
func (s *StepState) Journalled() StepState {
	c := *s
	if s.again() {
		c.Out = 0
		c.Attempt--
	}
	c.Copy, c.Tries, c.Heard, c.Effect = 0, 0, 0, s.Effect.journalled()
	if c.Awaits != 0 {
		c.Due, c.Effect.Open = 0, 0
	}
	return c
}

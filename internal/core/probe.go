package core

import "time"

// Probes. A step whose plan says so has its agent asked what became of a do that was not answered by its complete-by, before
// it is tried again or undone. The row of the silence leaves the step running, with nothing out, until the agent has said
// or the time for that is over: that row, `probed`, decides. The owner asks, and asks again, without a row. In a task that is
// undone the answer is evidence, as a late one is. That there is no effect counts only of a time when no do of the step can
// take effect any more, so that an agent has to look, and to promise nothing. It lets the step be tried again, but spares no
// undo: that leaves the tombstone which a do finds whose agent has a wrong clock.
// docs/decisions/033-probes.md says why.

// ProbeOutcome is what an agent says of a key when it is asked whether its do took effect.
type ProbeOutcome string

// The outcomes.
const (
	// ProbeDone: the effect is there, with the result that the do would have answered.
	ProbeDone ProbeOutcome = "done"
	// ProbeAbsent: there is no effect, and none is being made.
	ProbeAbsent ProbeOutcome = "absent"
	// ProbeInProgress: a do is at work, or the effect is being taken back.
	ProbeInProgress ProbeOutcome = "in_progress"
)

// Probe is an agent's answer to such a question.
type Probe struct {
	Outcome ProbeOutcome
	Result  []byte // JSON, of ProbeDone alone
}

// Decides reports whether the answer to a question of that time says what became of the do: that there is no effect counts
// from quiet on, see [Task.ProbeQuiet].
func (p *Probe) Decides(asked, quiet Instant) bool {
	return p.Outcome == ProbeDone || p.Outcome == ProbeAbsent && asked >= quiet
}

// Code is that of the [EventProbed] of an answer that decides.
func (p *Probe) Code() int {
	if p.Outcome == ProbeAbsent {
		return CodeAbsent
	}
	return 0
}

const (
	// probeMax is the longest that a step waits for what its agent says, but for a longer grace.
	probeMax = 30 * time.Second
	// probeHold is how long an agent has to say that there is no effect, from when no do can make one.
	probeHold = 2 * time.Second
)

// ProbeQuiet is from when on it counts that step i, whose agent is asked, has no effect.
func (t *Task) ProbeQuiet(i int) Instant {
	return max(0, t.Steps[i].Effect.Open.Add(-probeHold))
}

// probing reports whether the do of the step was silent, and its agent is asked what became of it.
func (s *StepState) probing() bool {
	return s.Status == StepRunning && s.Out == 0 && s.kind == kindCall
}

// AskedOf returns the step whose do was sent with journal row seq, was not answered, and whose agent is asked what became of it;
// -1: there is none.
func (t *Task) AskedOf(p *Plan, seq int64) int {
	for i := range t.Steps {
		if s := &t.Steps[i]; seq != 0 && s.Effect.Asks == seq && p.Steps[i].Probe && t.askable(i) {
			return i
		}
	}
	return -1
}

// askable reports whether what became of the silent do of step i may still say something: nothing has left for the step
// since. After the database went back a later do may have left that the journal does not know.
func (t *Task) askable(i int) bool {
	s := &t.Steps[i]
	if s.Out != 0 || s.Awaits != 0 || t.WentBackAt != 0 || !t.Active() {
		return false
	}
	return s.probing() || t.State == StateUndoing && (s.Status == StepWaiting || s.Status == StepFailed) && s.Effect.Possible()
}

// probe is silence of a do whose agent can be asked: the step stays as it is until the agent has said what became
// of it. false: it is to fail now, and its undo is held for the answer. Nobody is asked where nothing is unknown,
// after a late refusal, and not after the database went back. The agent has probeHold to say that there is no
// effect: until then the undo, too, is held.
func (d *decision) probe(r *Record, i int) bool {
	s := &d.t.Steps[i]
	if !d.p.Steps[i].Probe || s.Effect.refusedLate() || d.t.WentBackAt != 0 {
		return false
	}
	if r.EffectsPossibleUntil != 0 { // else its do was answered, and only its key is too old
		r.EffectsPossibleUntil = r.EffectsPossibleUntil.Add(probeHold)
	}
	// The question stands for as long as another do would take, and at least until absent counts and an undo may leave.
	// The step waits for its answer no longer than the task has time for work.
	until := max(d.at.Add(min(d.p.Steps[i].CompleteBy, probeMax)), r.EffectsPossibleUntil)
	end := min(until, d.t.workUntil(d.p))
	waits := d.t.State != StateUndoing && end > d.at
	if waits {
		r.StepStatus, r.Due = StepRunning, end
	}
	d.out.Effects = append(d.out.Effects, Effect{Kind: EffectProbe, Step: i, Attempt: s.Attempt, Seq: s.numberOut(), At: until})
	return waits
}

// probed takes what an agent says of a silent do. While the step waits for that it decides, as an answer in time
// would, but absent only from ProbeQuiet on. Afterwards that there is an effect is evidence for the undo, and
// anything else is stale.
func (d *decision) probed() error {
	i := d.t.AskedOf(d.p, d.ev.Seq)
	if i < 0 {
		return d.stale("its agent is not asked about that number any more")
	}
	s := &d.t.Steps[i]
	r := d.record(KindProbed, i)
	r.Code = d.ev.Code
	waits := s.probing()
	switch {
	case waits && d.at >= s.Due:
		return d.stale("the time in which its agent had to say so is over")
	case d.ev.Code == 0 && waits:
		r.StepStatus, r.Result, r.EffectsPossibleUntil = StepDone, d.ev.Result, d.t.ProbeQuiet(i)
		d.finish(&r, d.t.goesOn())
	case d.ev.Code == 0 && s.Effect.known():
		return d.stale("it is known")
	case d.ev.Code == 0:
		r.Result, r.Due = d.ev.Result, s.Due
		d.keep(&r)
	case d.ev.Code == CodeAbsent && !waits:
		return d.stale("its undo comes all the same: a do that is late finds it")
	case d.ev.Code == CodeAbsent && d.at < d.t.ProbeQuiet(i):
		return d.stale("its do may still take effect")
	case d.ev.Code == CodeAbsent:
		r.Error, r.EffectsPossibleUntil = "its agent says that it had no effect", d.t.ProbeQuiet(i)
		state := d.failing(&r, i, false)
		d.finish(&r, state)
	default:
		return d.stale("that does not say what became of it")
	}
	return nil
}

// probeOver ends the wait for what an agent says: it is not known what became of the do.
func (d *decision) probeOver(i int) {
	r := d.record(KindProbed, i)
	r.Code, r.Error = CodeTimeout, "its agent did not say what became of it"
	over := d.t.keyEnds(d.p, i) != 0 && d.at >= d.t.keyEnds(d.p, i)
	if over {
		r.Reason = cut(d.t.oldKey(d.p, i, false))
	}
	state := d.failing(&r, i, over)
	d.finish(&r, state)
}

// applyProbed keeps what an agent says of a silent do of step r.Step, whose attempt it may end. Evidence ends none.
func (t *Task) applyProbed(r *Record) {
	s := &t.Steps[r.Step]
	if r.StepStatus == StepDone {
		s.Effect.done(s.kind, r.Kind)
		s.Result = r.Result
	}
	if r.Code != CodeTimeout { // else what it says later is evidence, if no other do leaves
		s.Effect.settled()
	}
}

// resumeProbes asks again what a former owner has asked.
func (t *Task) resumeProbes(p *Plan, at Instant, out *Outcome) {
	for i := range t.Steps {
		s := &t.Steps[i]
		asked := s.Effect.Asks
		if asked == 0 || t.AskedOf(p, asked) != i {
			continue
		}
		if until := max(s.Due, s.Effect.Open); until > at {
			out.Effects = append(out.Effects, Effect{Kind: EffectProbe, Step: i, Attempt: s.Attempt, Seq: asked, At: until})
		}
	}
}

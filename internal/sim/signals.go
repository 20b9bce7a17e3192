package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Signals that senders send to tasks at any time: before their step begins, while it waits, when it is over, twice, to steps
// that take none, with payloads that may not count. What must be true: each counts once or not at all, as it was sent,
// unless its step is taken up again; and one is acknowledged without having counted only where it could not count (G8).

// signals are those that were sent, each by an actor of its own.
type signals struct {
	rand *rand.Rand // of its own, so that all else is drawn as it would be without
	sent map[string]*sentSignal
}

// sentSignal is one signal.
type sentSignal struct {
	step    string
	payload []byte // nil: it is refused
	reason  string
	never   string // why it may not count; empty: it may
	stored  bool   // its task was stored when it was sent
}

func newSignals(seed uint64) signals {
	return signals{rand: rand.New(rand.NewPCG(seed, 3)), sent: map[string]*sentSignal{}}
}

// signalFor is for how long after the storm signals are sent.
const signalFor = 4 * time.Second

// signalLater lets senders send signals in the storm, and for a while after it.
func (w *World) signalLater() {
	until := w.now.Add(w.cfg.Storm + signalFor)
	var next func()
	next = func() {
		w.signalSome()
		if w.now < until {
			w.after(time.Duration(1+w.signals.rand.IntN(160))*time.Millisecond, next)
		}
	}
	w.after(0, next)
}

// signalSome sends a signal to a task, and now and then another one to the same step.
func (w *World) signalSome() {
	r, id := w.signals.rand, ""
	p := r.IntN(w.cfg.Partitions)
	if rows := w.Store.byNumber[p]; len(rows) > 0 && r.IntN(8) > 0 {
		is := rows[r.IntN(len(rows))]
		if is.task.State.Ended() && r.IntN(4) > 0 {
			return
		}
		id = is.task.ID
	} else {
		id = w.ids[r.IntN(len(w.ids))] // it may have yet to come
	}
	plan := w.planOf(id)
	if plan == nil {
		return
	}
	step := plan.Steps[r.IntN(len(plan.Steps))].Name
	if takers := slices.DeleteFunc(slices.Clone(plan.Steps), func(s core.Step) bool { return s.Kind != core.SignalStep }); len(takers) > 0 && r.IntN(8) > 0 {
		step = takers[r.IntN(len(takers))].Name
	} else if r.IntN(4) == 0 {
		step = "none"
	}
	for range 1 + r.IntN(4)/3 {
		w.sendSignal(plan, id, step)
	}
}

func (w *World) sendSignal(plan *core.Plan, id, step string) {
	r, p := w.signals.rand, w.partitionOf(id)
	n := len(w.signals.sent) + 1
	s := &sentSignal{step: step, stored: w.Store.ids[idKey{p, id}] != nil}
	switch r.IntN(6) {
	case 0:
		s.reason = fmt.Sprintf("no, %d", n)
	case 1:
		s.payload = fmt.Appendf(nil, `{"wrong":%d}`, n)
	case 2:
		s.payload = fmt.Appendf(nil, `{"signal":%d,"more":%q}`, n, strings.Repeat("x", signalMax))
	default:
		s.payload = fmt.Appendf(nil, `{"signal":%d}`, n)
	}
	switch i := plan.StepIndex(step); {
	case i < 0 || plan.Steps[i].Kind != core.SignalStep:
		s.never = "its step takes none"
	case len(s.payload) > plan.Steps[i].ResultMax:
		s.never = "its payload is too large"
	case s.payload != nil && plan.Steps[i].Schema != "" && checkSignal(&plan.Steps[i], s.payload) != nil:
		s.never = "its payload does not fit the schema"
	}
	actor := fmt.Sprintf("sender-%d", n)
	w.signals.sent[actor] = s
	w.ask(message{partition: p, control: core.Control{
		Kind: core.EventSignal, ID: id, Type: plan.Name, Step: step, Result: s.payload, Reason: s.reason, Actor: actor, Ask: w.askedOf(id, step),
	}})
}

// askedOf is the token of what a step asks now; of half of the answers it is left out.
func (w *World) askedOf(id, step string) string {
	r := w.Store.ids[idKey{w.partitionOf(id), id}]
	if w.signals.rand.IntN(2) == 0 || r == nil || r.purged {
		return ""
	}
	plan, t, err := w.Store.replay(r)
	if err != nil || plan == nil || plan.StepIndex(step) < 0 {
		return ""
	}
	return t.AskToken(plan, plan.StepIndex(step))
}

// checkApproved holds a do that a row issues to the answers before it: none is for an input, or by a version, that is
// another now.
func (w *World) checkApproved(r *row, j *core.Record) {
	of := planBook{w}.Plan(r.task.Type, r.task.PlanVersion)
	if j.Next < 0 || j.Undo || r.task.WentBackAt != 0 || of == nil || !slices.ContainsFunc(of.Steps, func(s core.Step) bool { return s.Kind == core.SignalStep }) {
		return
	}
	plan, t, err := w.Store.replay(r)
	if err != nil || plan == nil || plan.Steps[j.Next].Kind != core.CallStep {
		return
	}
	for i := range t.Steps {
		given := t.Steps[i].Own().Signal
		if given == 0 || t.Steps[i].Status != core.StepDone || !plan.Ancestors(j.Next).Has(i) {
			continue
		}
		for k := range r.journal {
			is := &r.journal[k]
			if is.Round == j.Round && is.Seq > given && is.Seq <= j.Seq && (is.Kind == core.KindMigrated || is.Kind == core.KindResubmitted && is.Input != nil) {
				w.wrong(t.Partition, t.ID, "row %d issues a do of step %s, which comes after %s: that was answered in row %d, before row %d", j.Seq, plan.Steps[j.Next].Name, plan.Steps[i].Name, given, is.Seq)
			}
		}
	}
}

// signalMax is how large the payload of a signal may be, in bytes.
const signalMax = 64

var errWrongPayload = errors.New("it says that it is wrong")

// checkSignal is the schema of all signals that have one.
func checkSignal(_ *core.Step, payload []byte) error {
	if bytes.Contains(payload, []byte("wrong")) {
		return errWrongPayload
	}
	return nil
}

// takesSignal reports whether a row is the one by which a signal counts.
func takesSignal(j *core.Record) bool {
	return j.Kind == core.KindDone || j.Kind == core.KindRefused || j.Kind == core.KindSignalled
}

// checkSignalled holds a row by a sender to what was sent.
func (w *World) checkSignalled(r *row, j *core.Record) {
	s := w.signals.sent[j.Actor]
	if s == nil || j.Kind == core.KindStarted { // of a retry at another step, which the signal makes a command
		return
	}
	t := &r.task
	plan := planBook{w}.Plan(t.Type, t.PlanVersion)
	same := bytes.Equal(j.Result, s.payload) && (j.Code != 0) == (s.payload == nil) && j.Error == s.reason
	count := 0
	for i := range r.journal {
		switch is := &r.journal[i]; {
		case is.Kind == core.KindResubmitted: // a copy that comes now answers what waits now
			count = 0
		case is.Actor == j.Actor && takesSignal(is):
			count++
		}
	}
	switch {
	case !takesSignal(j) || j.Step < 0 || plan.Steps[j.Step].Name != s.step:
		w.wrong(t.Partition, t.ID, "G8: row %d is %s by a signal for step %s", j.Seq, j.Kind, s.step)
	case s.never != "":
		w.wrong(t.Partition, t.ID, "G8: row %d counts a signal, though %s", j.Seq, s.never)
	case !same:
		w.wrong(t.Partition, t.ID, "G8: row %d has code %d, result %s, error %q of the signal %s %q", j.Seq, j.Code, j.Result, j.Error, s.payload, s.reason)
	case count != 1:
		w.wrong(t.Partition, t.ID, "G8: the signal of %s counts %d times", j.Actor, count)
	}
}

// ackedSignal checks that a signal which is acknowledged has counted, or cannot count.
func (w *World) ackedSignal(m message) {
	c := &m.control
	s, r := w.signals.sent[c.Actor], w.Store.ids[idKey{m.partition, c.ID}]
	if s == nil || s.never != "" || !s.stored || r == nil || r.purged || r.task.PlanVersion == 0 || w.asks.refused[c.ID] {
		return
	}
	at := planBook{w}.Plan(r.task.Type, r.task.PlanVersion).StepIndex(s.step)
	for i := range r.journal {
		j := &r.journal[i]
		expired := j.Kind == core.KindOverdue && j.Step == at                                                            // perhaps it was read too late
		stopped := j.State == core.StateError && (i == len(r.journal)-1 || r.journal[i+1].At.Add(w.aheadMost()) >= m.at) // a task in error takes none
		if j.Actor == c.Actor || j.Kind == core.KindResubmitted || j.Kind == core.KindMigrated || expired || stopped {
			return
		}
	}
	plan, t, err := w.Store.replay(r)
	if err != nil || plan == nil || t.State != core.StatePending && t.State != core.StateProcessing {
		return
	}
	if c.Ask != "" && c.Ask != t.AskToken(plan, at) || c.Ask == "" && t.AskNeeded(plan, at) {
		return // it was for another ask, or the task has been taken up since and wants to hear for which
	}
	step := &t.Steps[plan.StepIndex(s.step)]
	late := step.Out != 0 && step.Due <= w.now.Add(w.aheadMost())
	if (step.Status == core.StepWaiting || step.Status == core.StepRunning) && !late && !r.referee.step(plan.StepIndex(s.step)).signalled {
		w.wrong(m.partition, c.ID, "G8: the signal of %s, stored at %s, for step %s is acknowledged and has not counted, though the step is %s and has had none", c.Actor, w.stamp(m.at), s.step, step.Status)
	}
}

// aheadMost is how far a clock may have been ahead of the world's a moment ago.
func (w *World) aheadMost() time.Duration {
	most := 2 * skewMax
	for _, c := range w.clocks {
		most = max(most, c.skew+c.wrong+2*skewMax)
	}
	return most
}

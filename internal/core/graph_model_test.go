package core

import (
	"fmt"
	"slices"
)

// graphWorld is what is outside a task whose plan is a graph: agents and services, as in the model of a chain, and its
// children. It knows nothing of what the core thinks of them.
type graphWorld struct {
	*model
	children map[effectKey]*brood
}

// brood are the children of one step in one round: as one, because the owner tells their end as one.
type brood struct {
	key     effectKey
	seq     int64 // the row that began the step last
	undoSeq int64 // the row that asked for their undo; 0: none has
	live    bool  // one of them may have an effect
	open    bool  // not all of them have come to their end, or their undo has not
	gaveUp  bool  // their undo has
	failed  bool  // they ended otherwise than processed
}

func newGraphWorld(p *Plan) *graphWorld {
	return &graphWorld{model: newModel(p), children: map[effectKey]*brood{}}
}

// bear makes the children of a step, or says that they are wanted again.
func (w *graphWorld) bear(e Effect, round int) {
	k := effectKey{round, e.Step}
	if b := w.children[k]; b != nil { // those that have ended well say so again, others run again
		b.seq, b.undoSeq, b.open, b.live = e.Seq, 0, true, true
		return
	}
	w.children[k] = &brood{key: k, seq: e.Seq, live: true, open: true}
}

// undoBrood asks for the undo of a step's children. There may be none: of an empty list, or of time that the database has
// lost.
func (w *graphWorld) undoBrood(e Effect, round int) {
	k := effectKey{round, e.Step}
	b := w.children[k]
	if b == nil {
		b = &brood{key: k}
		w.children[k] = b
	}
	b.undoSeq, b.open = e.Seq, true
}

// broods are those that have something to come to, in a fixed order.
func (w *graphWorld) broods() []*brood {
	var all []*brood
	for _, b := range w.children {
		if b.open {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b *brood) int {
		return (a.key.round-b.key.round)*StepsMax + a.key.step - b.key.step
	})
	return all
}

// possible reports whether a step may have an effect in a round at a time, by what is outside: its service has it, a do
// may be at work, or a child has one.
func (w *graphWorld) possible(p *Plan, k effectKey, now Instant) (string, bool) {
	s := &p.Steps[k.step]
	if s.Kind.Parent() {
		if b := w.children[k]; b != nil && b.live && !b.gaveUp {
			return "its children may have effects", true
		}
		return "", false
	}
	if s.Kind != CallStep || !s.Undoable {
		return "", false
	}
	if w.effect(k).live {
		return "its effect is live", true
	}
	if t, ok := w.quiet(k, now); !ok && !w.effect(k).tombstone {
		return fmt.Sprintf("its do of row %d may be at work until %d", t.seq, t.due+w.grace), true
	}
	return "", false
}

// checkUndo judges an undo of a step when it leaves: no step that comes after it, directly or through others, may have an
// effect, unless its undo has given up or the task goes on without the step.
func (w *graphWorld) checkUndo(p *Plan, t *Task, step int, now Instant) string {
	round := t.Round
	if w.settled[round] {
		return ""
	}
	if !p.Steps[step].Kind.Parent() {
		if try, ok := w.quiet(effectKey{round, step}, now); !ok {
			return fmt.Sprintf("the undo of step %d leaves at %d, but do %d (complete-by %d, grace %d, %d copies) may still be at work",
				step, now, try.seq, try.due, w.grace, try.copies)
		}
	}
	for j := step + 1; j < len(p.Steps); j++ {
		if !comesAfter(p, j, step) || t.Steps[j].Left != "" {
			continue
		}
		if why, is := w.possible(p, effectKey{round, j}, now); is {
			return fmt.Sprintf("G2: step %d is undone before step %d, which comes after it: %s", step, j, why)
		}
	}
	return ""
}

// checkGraphEnd judges the services and the children of a task in its present state.
func (w *graphWorld) checkGraphEnd(p *Plan, t *Task) string {
	for k, e := range w.effects {
		if w.settled[k.round] || p.Steps[k.step].Kind != CallStep || !p.Steps[k.step].Undoable {
			continue
		}
		if e.live && (k.round < t.Round || t.State == StateUndone) {
			return fmt.Sprintf("the effect of step %d in round %d is live after undone", k.step, k.round)
		}
		if e.applied > 1 {
			return fmt.Sprintf("step %d took effect %d times in round %d", k.step, e.applied, k.round)
		}
		if e.live && t.State == StateProcessed && k.round == t.Round && t.Steps[k.step].Status != StepDone {
			return fmt.Sprintf("G2: processed with step %d %s, and its effect is live", k.step, t.Steps[k.step].Status)
		}
	}
	for k, b := range w.children {
		if w.settled[k.round] {
			continue
		}
		if (b.live || b.open) && (k.round < t.Round || t.State == StateUndone) {
			return fmt.Sprintf("G6: children of step %d in round %d may have effects after undone", k.step, k.round)
		}
		if t.State == StateProcessed && k.round == t.Round && t.Steps[k.step].Status == StepSkipped && (b.live || b.open) {
			return fmt.Sprintf("processed with step %d skipped, and its children may have effects", k.step)
		}
	}
	if t.State != StateProcessed || w.settled[t.Round] {
		return ""
	}
	for i := range p.Steps {
		k := effectKey{t.Round, i}
		s := &p.Steps[i]
		if t.Steps[i].Status != StepDone || w.hand[k] {
			continue
		}
		if s.Kind == CallStep && s.Undoable && !w.effect(k).live {
			return fmt.Sprintf("processed without the effect of step %d", i)
		}
		none := s.Kind == EachStep && w.children[k] == nil // its list was empty
		if s.Kind.Parent() && !none && (w.children[k] == nil || w.children[k].open || w.children[k].undoSeq != 0) {
			return fmt.Sprintf("processed without the children of step %d", i)
		}
	}
	return ""
}

// graphJudge follows a journal by rules of its own.
type graphJudge struct {
	p     *Plan
	seq   int64
	at    Instant
	round int
	steps []judged
}

// judged is a step as the judge knows it.
type judged struct {
	out       int64 // the row that began what is out
	undo      bool
	due       Instant
	ok        bool // done or skipped
	lost      bool // it may have been undone since it was done: the database went back
	done      bool
	hand      bool // done by hand
	begun     bool
	ran       bool // it has begun, by the input before an edit too where that has not opened it again
	signalled bool // its signal has been taken
	used      bool // and the step has ended by it
}

// callsOut reports whether a do of a call is out at any step.
func (g *graphJudge) callsOut() int {
	for i := range g.p.Steps {
		if s := &g.steps[i]; s.out != 0 && !s.undo && g.p.Steps[i].Kind == CallStep {
			return i
		}
	}
	return -1
}

// take follows one row; by names the condition of a step that has one. The text says what must not be.
func (g *graphJudge) take(r *Record, when func(step int) bool) string {
	if r.Seq != g.seq+1 || r.At < g.at {
		return fmt.Sprintf("row %d at %d follows row %d at %d", r.Seq, r.At, g.seq, g.at)
	}
	g.seq, g.at = r.Seq, r.At
	if r.Round != g.round {
		g.round, g.steps = r.Round, make([]judged, len(g.p.Steps))
	}
	if what := g.lose(r); what != "" {
		return what
	}
	if r.Kind == KindResubmitted && r.Input != nil {
		g.void()
	}
	if r.Step >= 0 {
		if what := g.ended(r, when); what != "" {
			return what
		}
	}
	if r.State != StateProcessing && r.State != StatePending {
		for i := range g.p.Steps { // nothing is awaited of them any more
			if k := g.p.Steps[i].Kind; k == WaitStep || k == SignalStep || r.State.Ended() {
				g.steps[i].out = 0
			}
		}
	}
	if r.Next >= 0 {
		return g.begins(r, when)
	}
	return ""
}

// void forgets the answers that were for the input before an edit, but for those on which nothing rests any more, and opens
// what was skipped, or was done as a wait or a list is, without having run.
func (g *graphJudge) void() {
	for i := range g.p.Steps {
		s := &g.steps[i]
		rests := !s.ok
		for j := range g.p.Steps {
			rests = rests || !g.steps[j].ok && g.p.Ancestors(j).Has(i)
		}
		kind := g.p.Steps[i].Kind
		open := s.ok && !s.ran && (!s.done || (kind == WaitStep || kind == EachStep) && !s.hand)
		if kind == SignalStep && (rests || open) {
			*s = judged{}
		}
		s.ok, s.done = s.ok && !open, s.done && !open
		s.ran = s.ran && (s.ok || s.out != 0)
	}
}

// lose judges what may have been undone since the database went back: it is done again, at once or when the task starts
// again, or the task does not start again.
func (g *graphJudge) lose(r *Record) string {
	for i := range g.p.Steps {
		s, ps := &g.steps[i], &g.p.Steps[i]
		if r.Kind == KindWentBack {
			s.lost = s.lost || s.done
		}
		again := r.Kind == KindWentBack && (r.State == StatePending || r.State == StateProcessing || r.State == StateError)
		switch {
		case !s.done || !s.lost || r.Kind != KindResubmitted && !again:
		case !s.hand && ps.Kind == CallStep:
			s.ok, s.done, s.begun, s.signalled = false, false, false, false
		case r.Kind == KindResubmitted && (s.hand && ps.Undoable || ps.Kind == TaskStep || ps.Kind == EachStep):
			return fmt.Sprintf("row %d starts again with step %d, which may have been undone since the database went back", r.Seq, i)
		}
	}
	return ""
}

// ended judges what the row says of the step whose attempt ended.
func (g *graphJudge) ended(r *Record, when func(step int) bool) string {
	s, ps := &g.steps[r.Step], &g.p.Steps[r.Step]
	switch r.Kind {
	case KindDone:
		early := ps.Kind == SignalStep && s.signalled || ps.Kind == EachStep || ps.Kind == WaitStep // or nothing is to be waited for
		if s.out == 0 && !early || s.undo && s.out != 0 {
			if s.out == 0 && ps.Kind == CallStep { // a retry that no row had begun
				break
			}
			return fmt.Sprintf("G3: row %d says that step %d is done, and it was not out", r.Seq, r.Step)
		}
		if ps.Kind == WaitStep && s.out != 0 && r.At < s.due {
			return fmt.Sprintf("row %d ends the wait of step %d at %d, which is until %d", r.Seq, r.Step, r.At, s.due)
		}
	case KindSkipped:
		if ps.When == "" || when(r.Step) {
			return fmt.Sprintf("G7: row %d skips step %d, whose condition does not say so", r.Seq, r.Step)
		}
		if what := g.ready(r, r.Step); what != "" {
			return what
		}
	case KindSignalled:
		if ps.Kind != SignalStep || s.signalled || s.out != 0 || s.ok {
			return fmt.Sprintf("G8: row %d keeps a signal for step %d, which can take none", r.Seq, r.Step)
		}
		s.signalled = true
		return ""
	case KindResubmitted, KindAccepted: // what waits then may be asked again: it may have another input
		for i := range g.p.Steps {
			if b := &g.steps[i]; !b.ok && b.out == 0 {
				b.begun = false
			}
		}
		s.begun = false
		s.signalled = s.signalled && (r.Kind == KindAccepted || !s.used) // an early one is kept
	case KindWentBack:
		return ""
	case KindProbed:
		if s.out != 0 {
			return fmt.Sprintf("row %d says what became of a do of step %d, whose row %d is out", r.Seq, r.Step, s.out)
		}
		if r.Code == 0 && r.StepStatus != StepDone { // evidence
			return ""
		}
	case KindLate: // it ends nothing
		if r.StepStatus == StepDone || s.undo && s.out != 0 && r.StepStatus != StepUndoing {
			return fmt.Sprintf("a late answer, row %d, leaves step %d %s", r.Seq, r.Step, r.StepStatus)
		}
		s.ok = s.ok || r.StepStatus == StepSkipped
		return ""
	}
	if ps.Kind == SignalStep && (r.Kind == KindDone || r.Kind == KindRefused || r.Kind == KindFailed) {
		s.signalled, s.used = true, true
	}
	s.done, s.hand, s.lost = r.StepStatus == StepDone, r.Kind == KindAccepted, false
	s.ok = s.done || r.StepStatus == StepSkipped
	if r.Next != r.Step || r.Kind != KindStarted {
		s.out, s.undo = 0, false
	}
	return ""
}

func (g *graphJudge) ready(r *Record, step int) string {
	for _, a := range g.p.Steps[step].After {
		if !g.steps[a].ok {
			return fmt.Sprintf("G1: row %d lets step %d begin or be skipped before step %d, which it comes after, is done or skipped", r.Seq, step, a)
		}
	}
	return ""
}

// begins judges the command or the wait that a row issues.
func (g *graphJudge) begins(r *Record, when func(step int) bool) string {
	s, ps := &g.steps[r.Next], &g.p.Steps[r.Next]
	heard := r.Kind == KindStarted && r.Step == r.Next                    // a retry becomes a command
	if s.out != 0 && !heard && !(r.Undo && !s.undo && ps.Kind.Parent()) { // children are undone wherever they are
		return fmt.Sprintf("row %d begins step %d while its row %d is out", r.Seq, r.Next, s.out)
	}
	if !r.Undo {
		if r.State != StateProcessing && r.State != StatePending && !heard {
			return fmt.Sprintf("G1: row %d begins step %d in a task that is %s", r.Seq, r.Next, r.State)
		}
		if ps.Kind == CallStep && r.State != StateProcessing && !heard {
			return fmt.Sprintf("row %d issues a command and leaves the task %s", r.Seq, r.State)
		}
		if s.ok {
			return fmt.Sprintf("row %d begins step %d, which is done or skipped", r.Seq, r.Next)
		}
		if what := g.ready(r, r.Next); what != "" && !heard {
			return what
		}
		if ps.When != "" && !when(r.Next) {
			return fmt.Sprintf("G7: row %d begins step %d, whose condition is false", r.Seq, r.Next)
		}
		s.begun, s.ran = true, true
	} else if r.State == StateUndoing {
		if i := g.callsOut(); i >= 0 && !heard {
			return fmt.Sprintf("G2: row %d undoes step %d while the do of row %d is out at step %d", r.Seq, r.Next, g.steps[i].out, i)
		}
	} else if ps.OnExhausted != PolicySkip || r.State != StateProcessing {
		return fmt.Sprintf("row %d undoes step %d in a task that is %s", r.Seq, r.Next, r.State)
	}
	s.out, s.undo, s.due = r.Seq, r.Undo, r.Due
	return ""
}

package sim

import (
	"fmt"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
)

// referee follows the journal of one task by rules of its own, knowing nothing
// of how the core came to it. At each step one command is out at a time; only that one is
// answered, once, and before its complete-by; only after it is it overdue; time
// does not go back; what an operator accepted as done is not done again; a signal counts once.
// Steps begin and are undone in the plan's partial order.
type referee struct {
	at    core.Instant
	round int
	steps []refereed // as many as rows have named
}

// refereed is one step in the present round.
type refereed struct {
	out  int64 // row that began what is out; 0: nothing is
	undo bool  // of what is out, or was last
	due  core.Instant

	waits     int64 // it waits for its agent: the row under whose number its retries leave; 0: it does not
	waitsUndo bool

	failed    bool // for good: it is not done again, unless an operator says so
	begun     bool
	ran       bool // it has begun, by the input before an edit too where that has not opened it again
	begunLate bool // its time was over when it began: what made it begin was read late
	ok        bool // done, or skipped: what comes after may begin
	done      bool
	hand      bool // an operator has accepted it
	open      bool // its undo has begun, and is not over
	left      bool // its undo has given up
	signalled bool // it has had its signal

	silent     int64        // row of its newest do that was not answered in time
	asked      core.Instant // until when its agent is asked what became of that; 0: the step does not wait for it
	silentUndo int64        // the same of its undo
	known      bool         // a late answer has said that it took effect
	dos        int          // dos that have begun in this round, since one was refused that had no effect
}

// step is what is known of a step.
func (r *referee) step(i int) *refereed {
	if i >= len(r.steps) {
		r.steps = append(r.steps, make([]refereed, i+1-len(r.steps))...)
	}
	return &r.steps[i]
}

// clone is a copy that nothing of r changes.
func (r *referee) clone() referee {
	c := *r
	c.steps = slices.Clone(r.steps)
	return c
}

// working reports whether a do is out at an agent.
func (r *referee) working(p *core.Plan) bool {
	for i := range r.steps {
		if s := &r.steps[i]; s.out != 0 && !s.undo && kindIn(p, i) == core.CallStep {
			return true
		}
	}
	return false
}

// kindIn is the kind of a step of a plan, which may be unknown.
func kindIn(p *core.Plan, step int) core.StepKind {
	if p == nil || step >= len(p.Steps) {
		return core.CallStep
	}
	return p.Steps[step].Kind
}

// take follows one row of a task of a plan, nil where that is unknown; when says what the condition of a step comes to,
// nil: it is not known. answered is the row of the command that it ends by an agent's answer, or 0.
func (r *referee) take(j *core.Record, p *core.Plan, when func(step int) bool) (answered int64, err error) {
	if j.At < r.at {
		return 0, fmt.Errorf("it is dated %d, before the row before it at %d", j.At, r.at)
	}
	r.at = j.At
	if j.Round != r.round {
		r.round = j.Round
		clear(r.steps)
	}
	switch j.Kind {
	case core.KindWentBack:
		r.wentBack(j, p)
	case core.KindResubmitted, core.KindAccepted:
		for i := range r.steps {
			r.steps[i].failed = false // all that failed begin again
		}
		if j.Input != nil && p != nil {
			r.void(p)
		}
	case core.KindCancelled, core.KindUndoAsked:
		for i := range r.steps {
			r.steps[i].left, r.steps[i].silentUndo = false, 0
		}
	}
	if j.Step >= 0 {
		s := r.step(j.Step)
		if err := s.retry(j); err != nil {
			return 0, err
		}
		if answered, err = r.end(s, j, p, when); err != nil {
			return 0, err
		}
	}
	if j.Next >= 0 {
		err = r.begin(j, p, when)
	}
	r.leave(j, p)
	return answered, err
}

// void forgets the answers to signals that were for another input: an edit asks again, but for what nothing rests on. What was
// skipped, or was done as a wait or a list is, without having run is open again.
func (r *referee) void(p *core.Plan) {
	for i := range p.Steps {
		rests := !r.step(i).ok
		for k := range p.Steps {
			rests = rests || !r.step(k).ok && p.Ancestors(k).Has(i)
		}
		s := r.step(i)
		kind := p.Steps[i].Kind
		open := s.ok && !s.ran && (!s.done || (kind == core.WaitStep || kind == core.EachStep) && !s.hand)
		if kind == core.SignalStep && (rests || open) {
			*s = refereed{}
		}
		s.ok, s.done = s.ok && !open, s.done && !open
		s.ran = s.ran && (s.ok || s.out != 0)
	}
}

// wentBack: every call that was done is done again, but for what was done by hand.
func (r *referee) wentBack(j *core.Record, p *core.Plan) {
	for i := range r.steps {
		if s := &r.steps[i]; j.State != core.StateUndoing && s.done && !s.hand && kindIn(p, i) == core.CallStep {
			s.done, s.ok = false, false
		}
	}
}

// leave ends what a task that does not go forward any more awaits.
func (r *referee) leave(j *core.Record, p *core.Plan) {
	if j.State == core.StateProcessing {
		return
	}
	for i := range r.steps {
		s := &r.steps[i]
		if j.State != core.StateUndoing || !s.waitsUndo {
			s.waits = 0
		}
		kind := kindIn(p, i)
		passive := kind == core.WaitStep || kind == core.SignalStep
		if passive && j.State != core.StatePending || kind.Parent() && j.State.Ended() {
			s.out = 0
		}
	}
}

// end judges what the row says of the step whose attempt it ends.
func (r *referee) end(s *refereed, j *core.Record, p *core.Plan, when func(step int) bool) (answered int64, err error) {
	kind := kindIn(p, j.Step)
	switch j.Kind {
	case core.KindStarted:
		if j.Next < 0 && j.StepStatus == core.StepRunning { // its key is too old
			s.silent, s.asked, s.waits = j.Seq, j.Due, 0
		}
	case core.KindDone, core.KindFailed, core.KindRefused:
		answered, err = s.ends(j, p, kind)
		if overWithoutEffect(j) {
			s.dos = 0
		}
		s.failed = kind == core.CallStep && j.Final()
	case core.KindUndone, core.KindUndoFailed, core.KindUndoRefused:
		answered, err = s.answer(j, true, kind)
	case core.KindUndoGaveUp:
		switch {
		case s.out == 0: // it had waited for its agent for too long
		case j.Code != 0:
			answered, err = s.answer(j, true, kind)
		default:
			s.silentUndo = s.out
			err = s.silence(j, true)
		}
	case core.KindOverdue:
		s.silent, s.asked = s.out, 0
		if j.StepStatus == core.StepRunning {
			s.asked = j.Due
		}
		err = s.silence(j, false)
	case core.KindUndoOverdue:
		s.silentUndo = s.out
		err = s.silence(j, true)
	case core.KindLate:
		return 0, s.late(j, p)
	case core.KindProbed:
		if err := s.probed(j); err != nil || j.Code == 0 && j.StepStatus != core.StepDone {
			return 0, err // evidence ends nothing
		}
	case core.KindUndoLate:
		err = s.lateUndo(j)
	case core.KindUnserved, core.KindUndoUnserved:
		answered, err = s.unserved(j)
	case core.KindAccepted:
		if s.out != 0 {
			return 0, fmt.Errorf("it accepts step %d while row %d is out", j.Step+1, s.out)
		}
		s.hand = true
	case core.KindPoisoned:
		s.out = 0
	case core.KindSkipped:
		if when != nil && when(j.Step) {
			return 0, fmt.Errorf("G7: it skips step %d, whose condition is true", j.Step+1)
		}
		err = r.ready(j.Step, p)
	case core.KindSignalled:
		if kind != core.SignalStep || s.signalled || s.ok || s.out != 0 {
			return 0, fmt.Errorf("G8: it keeps a signal for step %d, which can take none", j.Step+1)
		}
		s.signalled = true
	case core.KindResubmitted:
		s.signalled = false
	}
	if err != nil {
		return answered, err
	}
	r.status(s, j)
	return answered, nil
}

// status keeps what the step is after the row.
func (r *referee) status(s *refereed, j *core.Record) {
	if j.Kind == core.KindSignalled || j.Kind == core.KindStarted {
		return
	}
	s.done = j.StepStatus == core.StepDone
	s.ok = s.done || j.StepStatus == core.StepSkipped
	s.hand = s.hand && s.done
	s.open = j.StepStatus == core.StepUndoing
	if j.Kind == core.KindUndoRefused || j.Kind == core.KindUndoGaveUp {
		s.left, s.open = true, false
	}
}

// ends judges the end of a do, a wait, a signal or children.
func (s *refereed) ends(j *core.Record, p *core.Plan, kind core.StepKind) (answered int64, err error) {
	if s.out == 0 {
		if kind == core.SignalStep && s.signalled {
			return 0, nil
		}
		if p != nil && j.Kind == core.KindRefused && j.Code == core.CodeRefused && hasExpression(&p.Steps[j.Step]) {
			return 0, nil // an expression that failed
		}
		if j.Kind == core.KindDone && (kind == core.WaitStep || kind == core.EachStep) {
			return 0, nil // its instant had passed, or its list was empty
		}
	}
	switch kind {
	case core.CallStep:
		return s.answer(j, false, kind)
	case core.WaitStep:
		if j.At < s.due {
			return 0, fmt.Errorf("it ends a wait at %d, which is until %d", j.At, s.due)
		}
		return 0, s.over(j, false)
	case core.SignalStep:
		if s.signalled {
			return 0, fmt.Errorf("G8: it takes a second signal for step %d", j.Step+1)
		}
		s.signalled = true
	}
	_, err = s.answer(j, false, kind)
	return 0, err
}

// hasExpression reports whether a step may fail before it begins.
func hasExpression(s *core.Step) bool {
	return s.When != "" || s.Input != "" || s.Until != "" || s.Elements != ""
}

func (s *refereed) unserved(j *core.Record) (answered int64, err error) {
	undo := j.Kind == core.KindUndoUnserved
	switch {
	case s.out == 0 && s.waits != 0 && undo: // an operator is told
	case j.Code != 0: // an agent that cannot take it
		answered, err = s.answer(j, undo, core.CallStep)
	default:
		err = s.over(j, undo)
	}
	if j.State != core.StateUndoing || undo {
		s.waits, s.waitsUndo = j.Seq, undo
	}
	return answered, err
}

// begin judges what the row begins: a do or a wait, or an undo.
func (r *referee) begin(j *core.Record, p *core.Plan, when func(step int) bool) error {
	s, kind := r.step(j.Next), kindIn(p, j.Next)
	heard := j.Kind == core.KindStarted && j.Step == j.Next && s.waits != 0
	if s.out != 0 && !(kind.Parent() && j.Undo && !s.undo) { // children are undone wherever they are
		return fmt.Errorf("it begins step %d while row %d of it is out", j.Next+1, s.out)
	}
	switch {
	case heard: // the retry had left before
	case j.Undo:
		if err := r.mayUndo(j, p); err != nil {
			return err
		}
	default:
		if err := r.mayDo(s, j, p, when); err != nil {
			return err
		}
	}
	s.out, s.undo, s.due = j.Seq, j.Undo, j.Due
	if heard {
		s.out = s.waits
	}
	s.waits = 0
	if !j.Undo && !heard {
		s.dos++
	}
	s.begun, s.ran, s.open = s.begun || !j.Undo, s.ran || !j.Undo, j.Undo
	if kind == core.SignalStep && !j.Undo {
		s.signalled = false // it begins again when what stopped its task is accepted
	}
	return nil
}

// mayDo: a do begins when all that it comes after is done or skipped, and the task is processing (G1). What waits for
// nothing that is in memory leaves it pending.
func (r *referee) mayDo(s *refereed, j *core.Record, p *core.Plan, when func(step int) bool) error {
	kind := kindIn(p, j.Next)
	switch {
	case s.hand:
		return fmt.Errorf("it does step %d again, which was done by hand", j.Next+1)
	case s.ok:
		return fmt.Errorf("it does step %d again, which is done or skipped", j.Next+1)
	case s.failed:
		return fmt.Errorf("it does step %d again, which has failed for good", j.Next+1)
	case j.State != core.StateProcessing && (j.State != core.StatePending || kind == core.CallStep || kind == core.EachStep):
		return fmt.Errorf("G1: it begins step %d and leaves the task %s", j.Next+1, j.State)
	case when != nil && p != nil && p.Steps[j.Next].When != "" && !when(j.Next):
		return fmt.Errorf("G7: it begins step %d, whose condition is false", j.Next+1)
	}
	return r.ready(j.Next, p)
}

func (r *referee) ready(step int, p *core.Plan) error {
	if p == nil {
		return nil
	}
	for _, a := range p.Steps[step].After {
		if !r.step(a).ok {
			return fmt.Errorf("G1: step %d comes after step %d, which is neither done nor skipped", step+1, a+1)
		}
	}
	return nil
}

// mayUndo: an undo begins when no do is at an agent, and nothing that comes after its step, directly or through others, is
// done or on its way to be undone (G2). That of an optional step begins while the task goes on.
func (r *referee) mayUndo(j *core.Record, p *core.Plan) error {
	if p == nil {
		return nil
	}
	if j.State == core.StateProcessing && p.Steps[j.Next].OnExhausted == core.PolicySkip {
		if s := r.step(j.Next); s.done {
			return fmt.Errorf("G2: it undoes step %d, which is done, in a task that goes on", j.Next+1)
		}
		return nil
	}
	if j.State != core.StateUndoing {
		return fmt.Errorf("G2: it undoes step %d of a task that is %s", j.Next+1, j.State)
	}
	for i := range r.steps {
		s := &r.steps[i]
		switch {
		case s.out != 0 && !s.undo && kindIn(p, i) == core.CallStep:
			return fmt.Errorf("G2: it undoes step %d while the do of row %d is out at step %d", j.Next+1, s.out, i+1)
		case i != j.Next && (s.done && p.Steps[i].Undoable || s.open) && !s.left && comesAfter(p, i, j.Next):
			return fmt.Errorf("G2: it undoes step %d before step %d, which comes after it", j.Next+1, i+1)
		}
	}
	return nil
}

// comesAfter reports whether a step comes after another one, directly or through others.
func comesAfter(p *core.Plan, later, step int) bool {
	for _, a := range p.Steps[later].After {
		if a == step || a > step && comesAfter(p, a, step) {
			return true
		}
	}
	return false
}

// retry takes a row that ends a retry which no row has issued: of a step that waits for
// its agent, under the number of the row that began the wait.
func (s *refereed) retry(j *core.Record) error {
	if s.waits == 0 || j.Kind == core.KindStarted || j.Kind == core.KindSignalled || j.Kind == core.KindLate || j.Kind == core.KindUndoLate || j.Kind == core.KindProbed {
		return nil
	}
	number := s.waits
	undo := false
	switch j.Kind {
	case core.KindUndone, core.KindUndoFailed, core.KindUndoRefused, core.KindUndoOverdue:
		undo = true
	case core.KindUndoUnserved, core.KindUndoGaveUp:
		undo = true
		if j.Code == 0 || !strings.HasPrefix(j.Actor, instance+"@") {
			return nil // nothing was out, or it was given back
		}
	case core.KindCancelled, core.KindUndoAsked, core.KindExpired, core.KindPoisoned:
		s.waits = 0
		return nil
	}
	if s.out != 0 {
		return fmt.Errorf("it ends a retry of step %d while row %d's command is out", j.Step+1, s.out)
	}
	s.out, s.undo, s.due = number, undo, j.At+1
	if j.Kind == core.KindOverdue || j.Kind == core.KindUndoOverdue {
		s.due = j.At
	}
	s.waits = 0
	return nil
}

// answer ends what is out before its time was over. Only agents' answers are returned.
func (s *refereed) answer(j *core.Record, undo bool, kind core.StepKind) (int64, error) {
	if s.out != 0 && j.At >= s.due {
		return 0, fmt.Errorf("it takes an answer at %d to a command whose time was over at %d", j.At, s.due)
	}
	out := s.out
	if kind != core.CallStep {
		out = 0
	}
	return out, s.over(j, undo)
}

func (s *refereed) silence(j *core.Record, undo bool) error {
	if s.out != 0 && j.At < s.due {
		return fmt.Errorf("it calls a command overdue at %d that has time until %d", j.At, s.due)
	}
	return s.over(j, undo)
}

// over ends what is out.
func (s *refereed) over(j *core.Record, undo bool) error {
	if s.out == 0 || s.undo != undo {
		return fmt.Errorf("a row %s of step %d, but what is out is row %d, undo %v", j.Kind, j.Step+1, s.out, s.undo)
	}
	s.out = 0
	return nil
}

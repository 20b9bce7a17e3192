package core

import "cmp"

// applyRecord changes t as r says. Where something comes next, Apply makes the same two calls with its decision
// about it between them, so a replayed task equals the live one.
func (t *Task) applyRecord(r *Record) {
	t.beginTransition(r)
	t.completeTransition(r, t.State)
}

// beginTransition keeps what r says of the round, the deadline and the step whose attempt ended. The order counts.
// A new round forgets the steps first. The input of an edit is kept before applyAgain lets failed steps wait,
// because only steps that have run keep the input before. Of an undo that is asked for, applyUse comes before
// applyUndoAgain, which forgets since when the undo before was tried.
func (t *Task) beginTransition(r *Record) {
	round := r.Round > t.Round
	if round {
		// A new round follows an undo: its keys are new, and no undo asks for an earlier input any more.
		t.Round, t.Earlier = r.Round, nil
		t.Result, t.Reopened = nil, false
		resetSteps(t.Steps)
	}
	if r.Input != nil && r.Kind == KindResubmitted {
		t.applyInput(r.Input)
	}
	if r.Kind == KindResubmitted || r.Kind == KindAccepted {
		t.applyAgain(r.Input != nil)
		t.TakenUp = r.Seq
	}
	if r.Kind == KindResubmitted {
		t.applyVoid(stepSet(r.Result))
	}
	if round && t.WentBackAt != 0 {
		t.applyRoundAfterWentBack()
	}
	if r.Deadline != 0 {
		t.Deadline = r.Deadline
	}
	if r.Kind == KindCancelled || r.Kind == KindUndoAsked {
		if r.Step >= 0 {
			t.Steps[r.Step].applyUse(r, t.CreatedAt)
		}
		t.applyUndoAgain(r.At)
	}
	if r.Step >= 0 {
		t.applyToStep(r)
	}
	if r.Kind == KindWentBack {
		t.applyWentBack(r)
	}
	if r.Kind == KindMigrated {
		t.TakenUp = r.Seq
		t.applyMigrated(r)
	}
	if r.Kind == KindResult {
		t.Result = r.Result
	}
}

// applyAgain lets every step that failed begin again, not only the one that an operator names or accepts, and those
// that may have been undone. After an edit the expressions of what has yet to run are asked again, with one
// exception: a step whose children may exist keeps its list, because they are its elements by their places in it.
func (t *Task) applyAgain(edited bool) {
	for i := range t.Steps {
		s := &t.Steps[i]
		s.applyRepeat()
		if s.Status == StepFailed {
			s.Status, s.Attempt, s.Due = StepWaiting, 0, 0
			if s.kind == kindSignal {
				s.own, s.Used = nil, 0 // it waits for another answer
			}
		}
		if edited && s.Status == StepWaiting && !(s.kind.parent() && s.Effect.Possible()) {
			s.begun = false // what its expressions say of the new input
		}
	}
}

// applyInput takes the input of an edit. Steps that have run keep the one that they ran with, for their undo: by
// its place in Earlier, which EditsMax keeps within a byte. Those that have a place already ran by an earlier input
// still. An input by which nothing ran is forgotten.
func (t *Task) applyInput(input []byte) {
	used := false
	for i := range t.Steps {
		if s := &t.Steps[i]; (s.Effect.Possible() || s.Status == StepFailed) && s.Input == 0 {
			s.Input, used = uint8(len(t.Earlier)+1), true
		}
	}
	if used {
		// Without room behind its end: copies of a task share the list, and none may see what another appends.
		t.Earlier = append(t.Earlier[:len(t.Earlier):len(t.Earlier)], t.Input)
	}
	t.Input = input
}

// applyWentBack makes every step one that may have an effect, or may have been undone:
// what is done is done again, by the same key and the same input, in a task that has ended or is being undone when it
// starts again. What was done by hand is not: its service would do it a second time.
func (t *Task) applyWentBack(r *Record) {
	t.WentBackAt, t.BornAgain, t.LostUntil = r.At, t.BornAgain || r.Seq == 1, max(t.LostUntil, r.EffectsPossibleUntil)
	used, undoUsed := t.lostUse()
	// Only a task that goes forward, or that may be resubmitted in the same round, does again what is done. Another
	// is being undone, or is only taken up by an undo or in a new round: it has more to undo, and nothing to do.
	again := r.State == StatePending || r.State == StateProcessing || r.State == StateError
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Status == StepUndone {
			continue // its tombstone is from before, or from after the time that is lost
		}
		if s.kind.passive() || s.Status == StepSkipped && again {
			continue // it has no effect
		}
		s.Effect.wentBack(s.Status == StepDone, r.EffectsPossibleUntil)
		s.Used, s.UndoUsed = cmp.Or(s.Used, used), cmp.Or(s.UndoUsed, undoUsed)
		if again {
			s.applyRepeat()
		}
	}
}

// lostUse is since when the keys of a do, and of an undo, may have been used in time that is lost. Of a task that the database did
// not know any more all keys may be as old as itself.
func (t *Task) lostUse() (used, undoUsed Instant) {
	if !t.BornAgain {
		return t.WentBackAt, 0
	}
	used = min(max(t.CreatedAt, t.StartAt), t.WentBackAt)
	return used, used
}

// applyRepeat lets a step that may have been undone, since the database went back, begin again.
func (s *StepState) applyRepeat() {
	if s.Effect.is == effectLost && s.Status == StepDone && s.kind == kindCall {
		s.Status, s.Attempt, s.Due = StepWaiting, 0, 0
	}
}

// applyRoundAfterWentBack makes the steps of a new round ones that may have an effect: in the time that is lost the task
// may have come to this round as well, by the same keys.
func (t *Task) applyRoundAfterWentBack() {
	used, undoUsed := t.lostUse()
	for i := range t.Steps {
		if s := &t.Steps[i]; !s.kind.passive() {
			s.Effect, s.Used, s.UndoUsed = StepEffect{is: effectPossible, Open: t.LostUntil}, used, undoUsed
		}
	}
}

// applyToStep changes the step whose attempt ended, or that was reset. Evidence, as a late answer to a do, ends no
// attempt: what is out, its number and its times stay. Any other row may end what is out, or a wait, so that its
// number and the use of its key are read before they are cleared.
func (t *Task) applyToStep(r *Record) {
	s := &t.Steps[r.Step]
	if r.Kind == KindProbed {
		s.applyFound(r, t.State.Ended())
	}
	if r.Kind == KindLate || r.Evidence() {
		t.applyLate(r)
		return
	}
	number := s.numberOut()
	s.applyUse(r, t.CreatedAt)
	s.Status, s.Attempt, s.Out, s.Due = r.StepStatus, r.Attempt, 0, 0
	s.Effect.ended(r.EffectsPossibleUntil)
	if r.Next < 0 {
		s.Due = r.Due // of its next attempt; with Next the time belongs to that command
	}
	s.Heard = 0
	asked := r.Kind == KindStarted && r.Next < 0 && r.StepStatus == StepRunning // its agent, because its key is too old
	if asked {
		s.Effect.Asks = r.Seq
	}
	if r.Kind != KindStarted || asked { // else its retry becomes a command
		s.Awaits, s.Said = 0, 0
	}
	// A wait that goes on by another row, as when the agent that was absent is full now, keeps its backoff.
	if r.Kind != KindUnserved && r.Kind != KindUndoUnserved {
		s.Tries = 0
	}
	switch r.Kind {
	case KindSignalled:
		s.Result = r.Result
		s.change(func(own *StepOwn) {
			own.Signal, own.Early, own.Code, own.Refusal = r.Seq, true, r.Code, r.Error
		})
	case KindDone, KindAccepted:
		s.Effect.done(s.kind, r.Kind)
		s.Result = r.Result
		if s.kind == kindSignal {
			t.applySignal(s, r)
		}
	case KindProbed:
		t.applyProbed(r)
	case KindResubmitted:
		// What was done before the database went back is done again by the input that it had; a step that an edit
		// starts from is done by the new one.
		if r.Input != nil {
			s.Effect.anew()
		}
	case KindFailed, KindOverdue:
		if none := r.Kind == KindOverdue && s.applySilence(r, number); !none && !s.kind.passive() {
			s.Effect.may() // no answer, or one that may hide an effect, is not "no effect"
		}
		t.Failures++
	case KindPoisoned:
		// Nobody waits for the answer of what was out, or of a retry that a former owner may have sent.
		if r.StepStatus == StepFailed || r.EffectsPossibleUntil != 0 {
			s.Effect.may()
		}
		t.Failures++
	case KindCancelled, KindUndoAsked, KindExpired, KindStarted:
		// They end a wait for an agent. What a former owner sent meanwhile may have been heard.
		if r.EffectsPossibleUntil != 0 {
			s.Effect.may()
		}
	case KindRefused:
		// Only a command in one pair of hands is over with its refusal; EffectsPossibleUntil
		// ahead says that another copy of this one, or an earlier attempt, may not be.
		if r.EffectsPossibleUntil > r.At {
			s.Effect.may()
		}
		if s.kind == kindSignal {
			t.applySignal(s, r)
		}
		t.Failures++
	case KindUndoRefused, KindUndoGaveUp:
		// Without a code the command that was out, if one was, got no answer: a late one may still undo the step.
		if r.Kind == KindUndoGaveUp && r.Code == 0 {
			s.applySilence(r, number)
		}
		t.Failures++
		// A text is what tells an undo that gave up from one that goes on, so there always is one.
		if s.Left = r.Error; s.Left == "" {
			s.Left = "it failed without a text"
		}
	case KindUndoFailed, KindUndoOverdue:
		if r.Kind == KindUndoOverdue {
			s.applySilence(r, number)
		}
		t.Failures++
		s.Alerted = s.Alerted || r.Reason != "" // such a row has a reason if an operator was told: see alert
	case KindUnserved:
		// An agent that says it cannot take the command may have begun it all the same, and a time says that another
		// copy or an earlier attempt may act until then.
		if r.Code != 0 || r.EffectsPossibleUntil != 0 {
			s.Effect.may()
		}
		if t.State == StateProcessing { // else the step is not wanted any more
			s.Awaits, s.Copy, s.Said = r.Seq, 0, int16(r.Code)
		}
	case KindUndoUnserved:
		s.Alerted = s.Alerted || r.Reason != ""
		s.Awaits, s.Copy, s.Said = r.Seq, 0, int16(r.Code)
		// The two are equal while the first attempt of this undo is the first use of its key. They differ once an operator
		// has asked again (applyUndoAgain), and once an agent has said that it cannot take the command.
		switch {
		case s.UndoUsed != s.Since:
		case r.Code != 0 || r.EffectsPossibleUntil != 0:
			s.UndoUsed-- // an agent has heard of it: see the next case
		case r.Attempt == 0: // that first attempt reached nobody: the key is not used yet, and does not grow old
			s.UndoUsed = 0
		}
	case KindUndone, KindUndoLate:
		s.Left = ""
		s.Effect.undone()
	}
}

// applySignal keeps by which row the answer to a signal came.
func (t *Task) applySignal(s *StepState, r *Record) {
	s.change(func(own *StepOwn) {
		if own.Signal == 0 {
			own.Signal = r.Seq
		}
		own.Early = false
	})
}

// applyUndoAgain lets undos that gave up, or are in trouble, begin again, and that of a task which was undone. The time of
// one that is at its agent, or waits for it, begins anew at once: no command of it follows by which it would.
func (t *Task) applyUndoAgain(at Instant) {
	for i := range t.Steps {
		s := &t.Steps[i]
		s.Since, s.Alerted, s.Left = 0, false, ""
		if s.Status == StepUndoing && s.numberOut() != 0 {
			s.Since = at
		}
		if s.UndoUsed != 0 {
			s.UndoUsed-- // it is before what begins now, in the same instant too
		}
		if s.Status == StepUndoing {
			s.Effect.Asks = 0
		}
		if s.Status == StepSkipped && t.State == StateUndone { // else it is not wanted
			s.Status = StepWaiting
		}
		if s.Status == StepUndoing && s.Out == 0 {
			s.Attempt, s.Due = 0, 0
		}
	}
}

// applyNext puts out the command that the row issues. heard says that it is a retry which left before the row: it
// keeps the number of the row that began its wait, under which the agent has it and will answer.
func (t *Task) applyNext(r *Record) {
	s, heard := &t.Steps[r.Next], r.Step == r.Next && r.Kind == KindStarted
	s.Effect.leaves(!r.Undo || s.Status != StepUndoing)
	if r.Undo {
		s.Status = StepUndoing
		s.Since, s.UndoUsed = cmp.Or(s.Since, r.At), cmp.Or(s.UndoUsed, r.At)
	} else {
		s.Status, s.begun = StepRunning, true
		// While nothing can have used the key its age counts from the newest command. That of a retry is known
		// better: see applyUse.
		if s.Used == 0 || !heard && s.Effect.unused() {
			s.Used = r.At
		}
		// A do runs by the present input, one that is repeated because the database went back by that which it had.
		if !s.Effect.lost() {
			s.Input = 0
		}
		if s.kind.parent() {
			s.Effect.may() // its children may have effects from their births on, whatever they come to
		}
		if r.Input != nil && r.Kind == KindStarted {
			t.applyGiven(s, r.Input)
		}
	}
	if heard {
		s.Out = s.Awaits
	} else {
		s.Out, s.Copy = r.Seq, 0
	}
	s.Awaits, s.Said, s.Tries, s.Heard = 0, 0, 0, 0
	s.Attempt, s.Due = r.NextAttempt, r.Due
}

// applyGiven keeps the own input of a step, or the list of an each.
func (t *Task) applyGiven(s *StepState, given []byte) {
	s.change(func(own *StepOwn) { own.Given = given })
}

// applyLeave ends what nothing is at work on, of a task that does not go forward any more: waits, signals, and the
// children of one that stops, which are looked at when it goes on.
func (t *Task) applyLeave(state State) {
	for i := range t.Steps {
		s := &t.Steps[i]
		switch {
		case s.probing(): // what its agent says is evidence from now on
			s.Status, s.Due = StepWaiting, 0
		case s.Out == 0:
		case s.kind.passive():
			s.Status, s.Out, s.Due, s.Attempt = StepWaiting, 0, 0, 0
		case s.kind.parent() && state.Ended():
			s.Out, s.Due = 0, 0
			if s.Status == StepRunning { // a resubmit starts from failed steps, and from none that runs
				s.Status = StepFailed
			}
		}
	}
}

// completeTransition keeps the command that r issues, the task's state, and what follows
// from it.
func (t *Task) completeTransition(r *Record, was State) {
	if r.Next >= 0 {
		t.applyNext(r)
	}
	if r.State != StateProcessing {
		// A do waits for its agent only while its task goes forward; an undo goes on waiting while the task is undone.
		for i := range t.Steps {
			if s := &t.Steps[i]; s.Awaits != 0 && (r.State != StateUndoing || s.Status != StepUndoing) {
				s.Awaits, s.Said, s.Tries, s.Due = 0, 0, 0, 0
			}
		}
		if r.State != StatePending {
			t.applyLeave(r.State)
		}
	}
	t.Seq, t.State, t.UpdatedAt = r.Seq, r.State, r.At
	t.applyReason(r, was)
	if t.State != StatePending {
		t.WaitsFor = ""
	} else {
		t.LockedBy = ""
	}
	if !t.State.Ended() {
		// It may have ended before, and was taken up: its next ending has a number of its own, and is told again.
		t.EndedAt, t.EndNumber = 0, 0
		return
	}
	if r.Kind != KindMigrated { // which leaves a task in error where it is
		t.EndedAt = r.At
	}
	t.LockedBy = ""
	if t.State == StateUndone {
		for i := range t.Steps {
			if t.Steps[i].Status == StepWaiting {
				t.Steps[i].Status = StepSkipped
			}
		}
	}
}

// applyReason keeps what a person asks first: which step failed and why. What goes
// wrong while undoing matters only when the undo gives up.
func (t *Task) applyReason(r *Record, was State) {
	switch r.Kind {
	case KindMigrated, KindExtended, KindSignalled: // which explain no failure that was before
		return
	case KindSkipped:
		if r.StepStatus == StepSkipped { // that is the plan's wish, and no failure
			return
		}
	case KindResubmitted, KindAccepted:
		t.FailedStep, t.Why, t.Asked = 0, "", false
		return
	case KindResolved:
		t.Asked = true
	case KindCancelled, KindUndoAsked:
		t.Asked = was.Ended() || r.At != t.WentBackAt // else its owner undoes it: see wentBack
		if r.Reason != "" {                           // a person's words are no failure of a step
			t.FailedStep, t.Why = 0, r.Reason
		}
		return
	case KindProbed: // the row of the silence has the reason
		if was == StateUndoing {
			t.applyUndoReason(r)
		}
		return
	case KindRefused, KindFailed, KindOverdue, KindUnserved:
		if was == StateUndoing { // what began the undo is the reason, not the end of what was still out
			t.applyUndoReason(r)
			return
		}
		if r.Kind == KindUnserved && r.Code == CodeTooEarly && t.FailedStep == r.Step+1 {
			return // what became of the attempt that is at work is the reason
		}
		t.FailedStep = r.Step + 1
	case KindExpired:
		if r.Step >= 0 {
			t.FailedStep = r.Step + 1
		}
	case KindLate, KindUndone, KindUndoLate, KindUndoRefused, KindUndoFailed, KindUndoOverdue, KindUndoUnserved, KindUndoGaveUp, KindStarted:
		t.applyUndoReason(r)
		return
	}
	if r.Error != "" {
		t.Why = r.Error
	} else if r.Reason != "" {
		t.Why = r.Reason
	}
}

// applyUndoReason is applyReason for what happens while undoing: only what is left at the end, because undos gave up,
// is more than why it began.
func (t *Task) applyUndoReason(r *Record) {
	if t.State != StateError {
		return
	}
	for i := range t.Steps {
		if t.Steps[i].Left != "" {
			t.FailedStep = i + 1
		}
	}
	t.Why = cmp.Or(r.Reason, r.Error)
}

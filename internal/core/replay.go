package core

import "fmt"

// Replay rebuilds a task from its row and its journal. p is the plan version of
// the row; nil when that plan is unknown: then the task has no steps, only its
// state. A command that is out counts as resent until it ends, because it is
// not known how many copies are with agents.
func Replay(p *Plan, saved *Saved) (*Task, error) {
	pl := Play(p, saved)
	for range saved.Journal {
		if _, err := pl.Next(); err != nil {
			return nil, err
		}
	}
	if saved.Err != nil {
		return nil, fmt.Errorf("task %s: %w", pl.t.ID, saved.Err)
	}
	if pl.t.Seq == 0 {
		return nil, fmt.Errorf("task %s: its journal is empty", pl.t.ID)
	}
	pl.settle(&pl.t)
	return &pl.t, nil
}

// Player replays a journal row by row: to go on costs one row, however many were before it. It is for one goroutine,
// and what it plays must not change meanwhile.
type Player struct {
	p     *Plan
	saved *Saved
	t     Task
}

// Play returns a player that stands before the first row. p is as for Replay. The row of the task tells how things
// stand after the last journal row: what those build up begins at zero, and what each of them sets, as the state,
// is overwritten by the first.
func Play(p *Plan, saved *Saved) *Player {
	pl := &Player{p: p, saved: saved, t: saved.Row}
	t := &pl.t
	t.Seq, t.Failures, t.Round = 0, 0, 0
	t.FailedStep, t.Why, t.Earlier, t.Result = 0, "", nil, nil
	t.WentBackAt, t.BornAgain, t.LostUntil = 0, false, 0
	if p != nil {
		t.Steps = newSteps(p)
	}
	return pl
}

// Next plays the next row; false: there is none. Error: the journal cannot be replayed.
func (pl *Player) Next() (bool, error) {
	if pl.saved.Err != nil {
		return false, fmt.Errorf("task %s: %w", pl.t.ID, pl.saved.Err)
	}
	if pl.t.Seq >= int64(len(pl.saved.Journal)) {
		return false, nil
	}
	return true, pl.t.replayRow(pl.p, &pl.saved.Journal[pl.t.Seq])
}

// Task is a copy of the task as it was after the row that was played last; see Replay.
func (pl *Player) Task() *Task {
	t := pl.t
	t.Steps = append([]StepState(nil), pl.t.Steps...)
	pl.settle(&t)
	return &t
}

// settle gives a task what its row says and its journal does not, for where it stands now: the number of its
// ending, who has it in memory, and the agent for whose room it waits.
func (pl *Player) settle(t *Task) {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Out != 0 && s.kind == kindCall {
			s.Effect.doubt(true) // the journal does not say how often it was sent
		}
	}
	row := &pl.saved.Row
	if t.State.Ended() {
		t.EndNumber = row.EndNumber
	} else {
		t.LockedBy = row.LockedBy
	}
	if t.State == StatePending {
		t.WaitsFor, t.LockedBy = row.WaitsFor, ""
	}
}

// replayRow changes the task as its next journal row says.
func (t *Task) replayRow(p *Plan, r *Record) error {
	if p == nil && r.Next+r.Step > -2 { // rows of steps that are not known any more
		bare := *r
		bare.Step, bare.Next = -1, -1
		r = &bare
	}
	if r.Seq != t.Seq+1 {
		return fmt.Errorf("task %s: journal row %d follows row %d", t.ID, r.Seq, t.Seq)
	}
	if max(r.Step, r.Next) >= len(t.Steps) {
		return fmt.Errorf("task %s: journal row %d names step %d of %d", t.ID, r.Seq, max(r.Step, r.Next)+1, len(t.Steps))
	}
	t.applyRecord(r)
	return nil
}

// Rewound rebuilds the task as it was after the journal row of that number. Error: there is no such row, or the journal
// cannot be replayed.
func Rewound(p *Plan, saved *Saved, seq int64) (*Task, error) {
	if seq < 1 || seq > int64(len(saved.Journal)) {
		return nil, fmt.Errorf("task %s: journal row %d, want 1 to %d", saved.Row.ID, seq, len(saved.Journal))
	}
	part := *saved
	part.Journal = saved.Journal[:seq]
	part.Row.State = saved.Journal[seq-1].State
	return Replay(p, &part)
}

// Resume writes into out what a new owner does with a task it has just
// replayed: the command out is sent again, with the same attempt and key, while
// its complete-by is ahead; a wait is waited for again. It journals nothing.
//
// From here on two copies of the command may be with agents, so an answer no longer
// proves that none is at work on it: an undo of that step will wait for its
// complete-by and the grace. The do of a task that is being undone is not sent
// again; if it never left, its complete-by ends the wait.
func Resume(p *Plan, t *Task, at Instant, out *Outcome) {
	out.Reset()
	if !t.Active() {
		return
	}
	waits := t.resumeWaits(p, at)
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Out == 0 || s.kind.passive() {
			continue
		}
		// Waits and signals are out without a command: nextWake and the supervisor look at their instants.
		kind, undo := EffectDo, s.Status == StepUndoing
		switch {
		case s.kind.parent() && !undo && t.State == StateUndoing:
			continue // its undo comes next
		case s.kind.parent() && undo:
			kind = EffectUndoChildren
		case s.kind.parent():
			kind = EffectChildren
		default:
			s.Effect.doubt(true)
			if at >= s.Due || !undo && t.State == StateUndoing {
				continue // the supervisor will ask
			}
			if undo {
				kind = EffectUndo
			}
		}
		out.Effects = append(out.Effects, Effect{Kind: kind, Step: i, Attempt: s.Attempt, Seq: s.Out, Copy: s.Copy, At: s.Due})
	}
	t.resumeProbes(p, at, out)
	next := t.nextWake(p, at)
	for _, n := range t.ahead(p) { // an attempt whose time came while the task had no owner
		if n.verb == verbBegin && n.when <= at {
			next = at
		}
	}
	// Nothing would ever make a held task move that has no timer and waits for no answer: it is looked at now.
	if next == 0 && (waits || !t.anyOut()) {
		next = at
	}
	if next != 0 {
		out.Effects = append(out.Effects, Effect{Kind: EffectWake, At: next})
	}
}

// anyOut reports whether anything is out.
func (t *Task) anyOut() bool {
	for i := range t.Steps {
		if t.Steps[i].Out != 0 {
			return true
		}
	}
	return false
}

// resumeWaits lets the steps that wait for their agents try again at once, and reports
// whether there is one. A retry of a former owner, which made sure of its ownership less
// than OwnedFor before, may be in some agent's hands: until that is over, no undo of the
// step may leave. It journals nothing; the row that ends the wait does.
func (t *Task) resumeWaits(p *Plan, at Instant) bool {
	waits := false
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Awaits == 0 {
			continue
		}
		waits = true
		s.Due = at
		t.triedElsewhere(p, i, at)
	}
	return waits
}

// triedElsewhere counts on retries of a wait that another owner sent before at. No undo of a do may leave before
// those are quiet. For an undo only the age of its key matters: if any was heard, it was used since the undo began.
func (t *Task) triedElsewhere(p *Plan, i int, at Instant) {
	s := &t.Steps[i]
	s.Effect.doubt(true)
	if s.Status != StepUndoing {
		s.Effect.Open = t.retriesQuiet(p, i, at)
	} else {
		s.Effect.Open = at // which says that another owner has tried too: see applyUse
	}
}

// Doubt is for an owner that may have had a successor meanwhile of which nothing is stored any more: what is out, and the
// retries of what waits, count as sent by another as well, as they do for a new owner. It journals nothing.
func (t *Task) Doubt(p *Plan, at Instant) {
	for i := range t.Steps {
		s := &t.Steps[i]
		s.Effect.doubt(s.Out != 0 && s.kind == kindCall)
		if s.Awaits != 0 {
			t.triedElsewhere(p, i, at)
		}
	}
}

// retriesQuiet is when no retry of a do that waits for its agent can still take effect,
// if any owner sent it before at.
func (t *Task) retriesQuiet(p *Plan, i int, at Instant) Instant {
	last := min(at.Add(OwnedFor+p.Steps[i].CompleteBy), t.Deadline)
	return max(t.Steps[i].Effect.Open, last.Add(p.Grace))
}

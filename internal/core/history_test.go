package core

import (
	"fmt"
	"testing"
)

// TestStepsKeepWhatHappened: after an undo a step still says how its do ended and at which attempt, and one whose undo gave up is
// not called undoing, while the task goes on nor when it has ended.
//
// covers: O7
func TestStepsKeepWhatHappened(t *testing.T) {
	p := stepsPlan(3)
	p.Steps[0].UndoAttemptsMax, p.Steps[1].UndoAttemptsMax = 2, 1
	r := newRig(t, p)
	r.birth(0)
	r.answer(0) // a
	r.answer(0) // b
	for range 3 {
		r.answer(500) // c
		if r.task.State == StateProcessing {
			r.wait()
		}
	}
	shown := func() string {
		text := ""
		for _, s := range r.task.View(r.plan, r.journal, r.now).Steps {
			text += fmt.Sprintf("%s %s %d %d %q; ", s.Name, s.Status, s.Attempt, s.Code, s.Error)
			if s.Undo.At != 0 {
				text += fmt.Sprintf("undo %d %d %q; ", s.Undo.Attempt, s.Undo.Code, s.Undo.Error)
			}
		}
		return text
	}
	expect := func(want string) {
		t.Helper()
		if got := shown(); got != want {
			t.Errorf("the steps are\n%s want\n%s", got, want)
		}
	}
	for r.task.Out() < 0 { // what the do may still do
		r.wait()
	}
	r.answer(0)   // the undo of c
	r.answer(500) // that of b, its only attempt
	expect(`a undoing 1 0 ""; undo 1 0 ""; b gave_up 1 0 ""; undo 1 500 "code 500"; c undone 3 500 "code 500"; undo 1 0 ""; `)
	r.answer(500)
	r.wait()
	r.answer(0)
	expect(`a undone 1 0 ""; undo 2 0 ""; b gave_up 1 0 ""; undo 1 500 "code 500"; c undone 3 500 "code 500"; undo 1 0 ""; `)
}

// doEnds and undoEnds are the kinds of the rows that say how an attempt ended, and which of them are failures.
var (
	doEnds   = map[Kind]bool{KindDone: false, KindAccepted: false, KindRefused: true, KindFailed: true, KindOverdue: true}
	undoEnds = map[Kind]bool{KindUndone: false, KindUndoLate: false, KindUndoRefused: true, KindUndoFailed: true, KindUndoOverdue: true, KindUndoGaveUp: true}
)

// checkHistory holds the table of the steps to the journal: the newest end of an attempt of a do and of an undo is there, whatever
// came after it on the other side; and nothing of a task that has ended is under way.
func (r *rig) checkHistory() {
	r.t.Helper()
	dos, undos := r.task.tries(r.journal)
	for i := range r.task.Steps {
		if word := r.task.StepWord(i); r.task.State.Ended() && (word == StepRunning.String() || word == StepUndoing.String()) {
			r.t.Fatalf("the task is %s, and step %d is called %s: %s", r.task.State, i, word, r.task)
		}
		for _, side := range []struct {
			ends  map[Kind]bool
			tries Tries
		}{{doEnds, dos[i]}, {undoEnds, undos[i]}} {
			if row := r.newestEnd(i, side.ends); row != nil && (row.Error != side.tries.Error || row.Code != side.tries.Code) {
				r.t.Fatalf("step %d: row %d says %s, %d %q, and the table %+v", i, row.Seq, row.Kind, row.Code, row.Error, side.tries)
			}
		}
	}
}

// newestEnd is the newest row about the end of an attempt of a step in this round, if that was a failure and nothing else was said
// of that side since.
func (r *rig) newestEnd(step int, ends map[Kind]bool) *Record {
	for k := len(r.journal) - 1; k >= 0 && r.journal[k].Round == r.task.Round; k-- {
		row := &r.journal[k]
		_, is := ends[row.Kind]
		_, undo := undoEnds[row.Kind]
		_, do := doEnds[row.Kind]
		switch other := undo || do; {
		case row.Step != step:
		case is && ends[row.Kind]:
			return row
		case is, !other && row.Kind != KindCancelled && row.Kind != KindUndoAsked && row.Kind != KindStarted && !row.Evidence():
			return nil
		}
	}
	return nil
}

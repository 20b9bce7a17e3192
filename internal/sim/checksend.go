package sim

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// checkSend holds a command that leaves to what is committed, and an undo to its
// step: nobody may be at work on its do any more.
func (w *World) checkSend(c *core.Command) {
	if w.forgot.commits[c.Commit] {
		return // it was committed when it was decided to leave
	}
	r := w.Store.rows[rowKey{c.Partition, c.Number}]
	if r == nil || r.task.ID != c.Task || !r.purged && !r.issued(c) {
		w.wrong(c.Partition, c.Task, "a command left that is not committed: %+v", *c)
		return
	}
	if r.purged {
		return // by a former owner that has stood still since
	}
	if c.Undo {
		w.checkQuiet(r, c)
		w.undoSent[c.Key()] = w.now
	} else {
		w.doSent[c.Key()] = w.now
	}
	w.sends[fence{c.Partition, c.Number, c.Seq, c.Commit}]++
}

// issued reports whether a committed journal row issued the command.
func (r *row) issued(c *core.Command) bool {
	if c.Seq < 1 || c.Seq > int64(len(r.journal)) {
		return false
	}
	j := &r.journal[c.Seq-1]
	return j.Next >= 0 && j.Undo == c.Undo && j.NextAttempt == c.Attempt && j.Due == c.CompleteBy && j.Round == c.Round
}

// checkQuiet: an undo leaves only when every do of its step in this round has
// been answered, and was in one pair of hands, or when the grace after its
// complete-by is over.
func (w *World) checkQuiet(r *row, c *core.Command) {
	undoAt := r.journal[c.Seq-1].At
	step := r.journal[c.Seq-1].Next
	for i := range r.journal[:c.Seq-1] {
		do := &r.journal[i]
		if do.Next != step || do.Undo || do.Round != c.Round {
			continue
		}
		if undoAt >= do.Due.Add(grace) {
			continue
		}
		if end := r.endOf(i, step); end == nil || !answers(end.Kind) || w.sends[fence{c.Partition, c.Number, do.Seq, r.commits[i]}] > 1 {
			w.wrong(c.Partition, c.Task, "undo of %s left at %s; its do of row %d may be at work until %s",
				c.Key(), w.stamp(undoAt), do.Seq, w.stamp(do.Due.Add(grace)))
		}
	}
}

// endOf is the row that ended the command which row i issued, if one has.
func (r *row) endOf(i, step int) *core.Record {
	for k := i + 1; k < len(r.journal); k++ {
		j := &r.journal[k]
		if j.Step == step && answers(j.Kind) || j.Kind == core.KindOverdue || j.Kind == core.KindPoisoned {
			return j
		}
	}
	return nil
}

// answers reports whether a row of that kind says that nobody is at work on the
// do any more.
func answers(k core.Kind) bool {
	return k == core.KindDone || k == core.KindFailed || k == core.KindRefused || k == core.KindUnserved
}

// checkTell: an ending that is told is committed.
func (w *World) checkTell(e *core.Ending) {
	r := w.Store.ids[idKey{e.Partition, e.ID}]
	if r == nil && w.forgot.ids[e.ID] || r != nil && w.forgot.ends[forgotEnd{e.ID, ended{e.Seq, e.State}}] {
		return
	}
	if r == nil || !slices.Contains(r.ends, ended{e.Seq, e.State}) {
		w.wrong(e.Partition, e.ID, "an ending is told that is not committed: %+v", *e)
	}
}

// told is what the event stream has stored.
type told struct {
	last map[string]core.Ending // by id: the newest
	ends map[endKey]bool
}

type endKey struct {
	partition int
	end       int64
	id        string
}

func (w *World) keepEnding(e *core.Ending) {
	w.tell(e.ID, -1, "the event stream has stored end %d, %s", e.EndNumber, e.State)
	w.told.ends[endKey{e.Partition, e.EndNumber, e.ID}] = true
	r := w.Store.ids[idKey{e.Partition, e.ID}]
	if r == nil || e.EndNumber > r.task.EndNumber || !slices.Contains(r.ends, ended{e.Seq, e.State}) {
		return // SQL went back meanwhile: another word follows
	}
	if w.told.last[e.ID].EndNumber <= e.EndNumber {
		w.told.last[e.ID] = *e
	}
}

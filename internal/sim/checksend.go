package sim

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// checkSend holds a command that leaves to what is committed, and an undo to its
// step: no agent may be at work on its do any more.
func (w *World) checkSend(n *node, c *core.Command) {
	if w.forgot.commits[c.Commit] { // it was committed when it was decided to leave
		for i := range w.forgot.times {
			w.forgot.times[i].keys[c.Key()] = true
		}
		if !c.Undo {
			w.owe(&core.Task{ID: c.Task}, c.Agent)
		}
		return
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
		if w.cfg.Graph {
			w.checkOrder(r, c)
		}
		w.undoSent[c.Key()] = w.now
	} else {
		w.doSent[c.Key()] = w.now
	}
	w.checkInput(r, c)
	at := commandRef{c.Partition, c.Number, c.Seq, c.Commit}
	w.sends[at]++
	w.noteSender(at, n)
	if r.journal[c.Seq-1].Next < 0 {
		w.retries[at] = append(w.retries[at], retry{copy: c.Copy, due: c.CompleteBy})
	}
	if !c.Undo && (w.sends[at] > 1 || r.journal[c.Seq-1].Next < 0) {
		w.owe(&r.task, c.Agent)
	}
}

// sender is whose command it was first, and when another sent it while that one stood still; 0: none has.
type sender struct {
	n     *node
	slept core.Instant
}

func (w *World) noteSender(at commandRef, n *node) {
	switch first, known := w.senders[at]; {
	case !known:
		w.senders[at] = sender{n: n}
	case n != first.n && first.n.frozen() > 0 && first.slept == 0:
		w.senders[at] = sender{first.n, w.now}
	}
}

// retry is one copy of a command that left while its step waited for its agent.
type retry struct {
	copy uint32
	due  core.Instant
	over bool // no agent was there to hear it, or one was and could not take it
}

// retryOver takes note that no agent is at work on a copy of a command.
func (w *World) retryOver(c *core.Command) {
	sent := w.retries[commandRef{c.Partition, c.Number, c.Seq, c.Commit}]
	for i := range sent {
		if sent[i].copy == c.Copy && sent[i].due == c.CompleteBy {
			sent[i].over = true
		}
	}
}

// issued reports whether a committed journal row issued the command.
func (r *row) issued(c *core.Command) bool {
	if c.Seq < 1 || c.Seq > int64(len(r.journal)) {
		return false
	}
	j := &r.journal[c.Seq-1]
	if wait := (j.Kind == core.KindUnserved || j.Kind == core.KindUndoUnserved) && j.Next < 0; wait {
		again := c.Undo && c.Attempt == 1 // an operator has asked for the undo since
		return c.Undo == (j.Kind == core.KindUndoUnserved) && (c.Attempt == j.Attempt+1 || again) && j.Round == c.Round
	}
	return j.Next >= 0 && j.Undo == c.Undo && j.NextAttempt == c.Attempt && j.Due == c.CompleteBy && j.Round == c.Round
}

// checkQuiet: an undo leaves only when every do of its step in this round has
// been answered, and was sent once, or when the grace after its
// complete-by is over.
func (w *World) checkQuiet(r *row, c *core.Command) {
	undoAt := r.journal[c.Seq-1].At
	step := r.journal[c.Seq-1].Next
	if step < 0 {
		step = r.journal[c.Seq-1].Step
	}
	for i := range r.journal[:c.Seq-1] {
		do := &r.journal[i]
		if do.Kind == core.KindUnserved && do.Step == step && do.Round == c.Round {
			w.checkRetries(r, i, step, undoAt, c)
		}
		if do.Next != step || do.Undo || do.Round != c.Round {
			continue
		}
		end, answered := r.endOf(i, step), core.Instant(0)
		if end != nil {
			answered = end.At
		}
		known := w.copiesKnown(commandRef{c.Partition, c.Number, do.Seq, r.commits[i]}, answered)
		if undoAt >= do.Due.Add(grace) || r.refusedLate(i, step) || w.forgot.former[c.Partition] && known <= 1 {
			continue
		}
		if end == nil || !answers(end.Kind) || known > 1 {
			w.wrong(c.Partition, c.Task, "undo of %s left at %s; its do of row %d may be at work until %s",
				c.Key(), w.stamp(undoAt), do.Seq, w.stamp(do.Due.Add(grace)))
		}
	}
}

// checkOrder: an undo leaves only when nothing that comes after its step, directly or through others, has an effect, but for
// what has given up (G2), and no child of it may have one.
func (w *World) checkOrder(r *row, c *core.Command) {
	if w.books.tomb[c.Key()] && !w.books.live[c.Key()] {
		return // it has been undone, and a former owner that stood still, or one whose SQL has forgotten it, says so again
	}
	plan := planBook{w}.Plan(c.Type, 0)
	step := plan.StepIndex(c.Step)
	for i := step + 1; i < len(plan.Steps); i++ {
		if !comesAfter(plan, i, step) || r.referee.step(i).left {
			continue
		}
		key := core.Key(c.Task, plan.Steps[i].Name, c.Round)
		if w.books.live[key] && plan.Steps[i].Undoable && !w.forgotten(c.Partition, key) {
			w.wrong(c.Partition, c.Task, "G2: the undo of %s leaves, and %s, which comes after it, has an effect", c.Key(), key)
		}
		if !plan.Steps[i].Kind.Parent() || w.backs > 0 {
			continue
		}
		for _, child := range w.childrenOf(&r.task, i, c.Round) {
			if s := child.task.State; s != core.StateUndone && !w.handled[child.task.ID] {
				w.wrong(c.Partition, c.Task, "G2: the undo of %s leaves, and %s, a child of a step that comes after it, is %s", c.Key(), child.task.ID, s)
			}
		}
	}
}

// checkRetries is checkQuiet for what left under the row that began a wait.
func (w *World) checkRetries(r *row, i, step int, undoAt core.Instant, c *core.Command) {
	open := 0
	for _, s := range w.retries[commandRef{c.Partition, c.Number, r.journal[i].Seq, r.commits[i]}] {
		if !s.over && undoAt < s.due.Add(grace) {
			open++
		}
	}
	if open > 0 && w.forgotten(c.Partition, c.Key()) {
		return // they may have more time by an extension that is lost, and its owner does not know that anything is
	}
	if end := r.endOf(i, step); open > 1 || open == 1 && (end == nil || !answers(end.Kind)) {
		w.wrong(c.Partition, c.Task, "undo of %s left at %s; %d retries under row %d may be at work", c.Key(), w.stamp(undoAt), open, r.journal[i].Seq)
	}
}

// endOf is the row that ended the command which row i issued, if one has.
func (r *row) endOf(i, step int) *core.Record {
	for k := i + 1; k < len(r.journal); k++ {
		j := &r.journal[k]
		if j.Step == step && (answers(j.Kind) || j.Kind == core.KindOverdue || j.Kind == core.KindPoisoned) || j.Kind == core.KindPoisoned && j.Step < 0 {
			return j
		}
	}
	return nil
}

// answers reports whether a row of that kind says that no agent is at work on the
// do any more.
func answers(k core.Kind) bool {
	return k == core.KindDone || k == core.KindFailed || k == core.KindRefused || k == core.KindUnserved
}

// checkPublish: an ending that is published is committed.
func (w *World) checkPublish(e *core.Ending) {
	r := w.Store.ids[idKey{e.Partition, e.ID}]
	if r == nil && w.forgot.ids[e.ID] || r != nil && w.forgot.ends[forgotEnd{e.ID, ended{e.Seq, e.State}}] {
		return
	}
	if r == nil || !slices.Contains(r.ends, ended{e.Seq, e.State}) {
		w.wrong(e.Partition, e.ID, "an ending is published that is not committed: %+v", *e)
	}
}

// published is what the event stream has stored.
type published struct {
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
	w.published.ends[endKey{e.Partition, e.EndNumber, e.ID}] = true
	r := w.Store.ids[idKey{e.Partition, e.ID}]
	if r == nil || e.EndNumber > r.task.EndNumber || e.EndNumber == r.task.EndNumber && e.State != r.task.State || !slices.Contains(r.ends, ended{e.Seq, e.State}) {
		return // SQL went back meanwhile: another word follows
	}
	if w.published.last[e.ID].EndNumber <= e.EndNumber {
		w.published.last[e.ID] = *e
	}
}

package sim

import (
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

// issued reports whether a committed journal row issued the command.
func (m *MemStore) issued(c *core.Command) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[rowKey{c.Partition, c.Number}]
	if r == nil || c.Seq < 1 || c.Seq > int64(len(r.journal)) {
		return false
	}
	j := &r.journal[c.Seq-1]
	return j.Next >= 0 && j.Undo == c.Undo && j.NextAttempt == c.Attempt
}

// acked checks that a message is acknowledged only when all its tasks are there.
func (w *World) acked(m message) {
	for i := range m.subs {
		if w.Store.Task(m.partition, m.subs[i].ID) == nil {
			w.wrong(m.partition, m.subs[i].ID, "a message is acknowledged before its task is stored")
		}
	}
}

// ended reports whether there is nothing left to do.
func (w *World) ended() bool { return w.door.Idle() && w.unfinished() == nil }

// unfinished says what is left to do: an accepted task that has not ended, an
// ending that is not told, something in memory, a cursor that lags.
func (w *World) unfinished() error {
	for id, p := range w.accepted {
		t := w.Store.Task(p, id)
		if t == nil || !t.State.Ended() {
			return fmt.Errorf("task %s was accepted and has not ended\n%s", id, w.Store.History(p, id))
		}
	}
	for p := range w.cfg.Partitions {
		st := w.Store.Partition(p)
		if st.Told != st.NextEnd-1 {
			return fmt.Errorf("partition %d has told %d of %d endings", p, st.Told, st.NextEnd-1)
		}
		for i, m := range w.stream {
			if m.partition == p && st.Cursor < uint64(i+1) {
				return fmt.Errorf("partition %d: the cursor is at %d, before message %d", p, st.Cursor, i+1)
			}
		}
		for i, m := range w.controls {
			if m.partition == p && st.ControlCursor < uint64(i+1) {
				return fmt.Errorf("partition %d: the control cursor is at %d, before message %d", p, st.ControlCursor, i+1)
			}
		}
		for _, n := range w.nodes {
			if f := n.feeds[p]; f != nil && f.epoch == st.Epoch && n.shard.Load(p) != 0 {
				return fmt.Errorf("partition %d: node %s still has %d tasks in hand", p, n.name, n.shard.Load(p))
			}
		}
	}
	return nil
}

// check is what must be true at the end.
func (w *World) check() error {
	if !w.door.Idle() {
		return errors.New("a submission has no answer")
	}
	if err := w.unfinished(); err != nil {
		return fmt.Errorf("after %v of calm: %w", w.cfg.Calm, err)
	}
	known := map[string]bool{}
	for id, p := range w.accepted {
		t := w.Store.Task(p, id)
		if told := w.told[id]; told.State != t.State || told.EndNumber != t.EndNumber {
			return fmt.Errorf("task %s is %s, told was %+v\n%s", id, t.State, told, w.Store.History(p, id))
		}
		if err := errors.Join(w.checkBooks(t, known), w.Store.checkJournal(t)); err != nil {
			return err
		}
	}
	if w.dead > 0 {
		return fmt.Errorf("%d dead letters without poison", w.dead)
	}
	for key := range w.books.live {
		if !known[key] {
			return fmt.Errorf("an effect under key %s belongs to no step that should have one", key)
		}
	}
	return nil
}

// checkJournal: a reply counts only before the complete-by of the command that
// it answers.
func (m *MemStore) checkJournal(t *core.Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var due core.Instant
	for _, j := range m.rows[rowKey{t.Partition, t.Number}].journal {
		switch j.Kind {
		case core.KindDone, core.KindFailed, core.KindRefused, core.KindUndone, core.KindUndoFailed, core.KindUndoRefused:
			if j.At >= due {
				return fmt.Errorf("task %s: row %d takes a reply at %d to a command whose time was over at %d", t.ID, j.Seq, j.At, due)
			}
		}
		if j.Next >= 0 {
			due = j.Due
		}
	}
	return nil
}

// checkBooks holds the services to the task: every step of a processed one has
// its effect, none of an undone one has. What a task in error has left, a person
// must see to.
func (w *World) checkBooks(t *core.Task, known map[string]bool) error {
	plan := planBook{w}.Plan(t.Type)
	for i := range t.Steps {
		key := core.Key(t.ID, plan.Steps[i].Name, t.Round)
		live := w.books.live[key]
		if t.State == core.StateError || t.State == core.StateProcessed {
			known[key] = true
		}
		if plan.Steps[i].Undoable && t.State == core.StateProcessed && !live {
			return fmt.Errorf("task %s is processed, but step %s has no effect\n%s", t.ID, plan.Steps[i].Name, w.Store.History(t.Partition, t.ID))
		}
		if t.State == core.StateUndone && live {
			return fmt.Errorf("task %s is undone, but step %s has an effect\n%s", t.ID, plan.Steps[i].Name, w.Store.History(t.Partition, t.ID))
		}
	}
	return nil
}

// Story is the history of every task, by number: the whole run.
func (w *World) Story() string {
	story := ""
	for p := range w.cfg.Partitions {
		for _, r := range w.Store.inOrder(p, func(*row) bool { return true }) {
			story += w.Store.History(p, r.task.ID)
		}
	}
	return story
}

package sim

import (
	"fmt"

	"duly.dev/duly/internal/core"
)

// ended reports whether there is nothing left to do.
func (w *World) ended() bool {
	_, _, left := w.unfinished()
	return left == ""
}

// unfinished says what is left to do: a client without an answer, an accepted
// task that has not ended, an ending that is not published, a cursor that lags,
// something in memory.
func (w *World) unfinished() (partition int, id, left string) {
	for _, c := range w.clients {
		if c.tries > 0 && !c.done {
			return -1, c.sub.ID, "a client of task " + c.sub.ID + " has no answer"
		}
	}
	for _, id := range w.family() {
		if left := w.unended(id); left != "" {
			return w.partitionOf(id), id, left
		}
	}
	for p := range w.cfg.Partitions {
		if left := w.lagging(p); left != "" {
			return p, "", left
		}
	}
	return 0, "", ""
}

// unended says what an accepted task has yet to come to. One that the loss of
// the stream took with it may never come to anything.
func (w *World) unended(id string) string {
	r := w.Store.ids[idKey{w.partitionOf(id), id}]
	switch {
	case id != core.RootID(id) && r == nil: // it came and went with its parent
		return ""
	case id == core.RootID(id) && (!w.accepted[id] || w.dead[id]):
		return ""
	case r == nil && w.lost[id]:
		return ""
	case r == nil:
		return "task " + id + " was accepted and is not stored"
	case !r.task.State.Ended():
		return fmt.Sprintf("task %s was accepted and is %s", id, r.task.State)
	}
	return ""
}

func (w *World) lagging(p int) string {
	st := w.Store.partition(p)
	if st.Stream != w.streamName() {
		return fmt.Sprintf("partition %d reads stream %q", p, st.Stream)
	}
	if st.Told != st.NextEnd-1 {
		return fmt.Sprintf("partition %d has published %d of %d endings", p, st.Told, st.NextEnd-1)
	}
	if wentBack(w.stream, place{st.Cursor, st.CursorStored}) || wentBack(w.controls, place{st.ControlCursor, st.ControlStored}) {
		return fmt.Sprintf("partition %d stands at messages that are others now: %+v", p, *st)
	}
	if last := lastOf(w.stream, p); st.Cursor < last {
		return fmt.Sprintf("partition %d: the cursor is at %d, before message %d", p, st.Cursor, last)
	}
	if last := lastOf(w.controls, p); st.ControlCursor < last {
		return fmt.Sprintf("partition %d: the control cursor is at %d, before message %d", p, st.ControlCursor, last)
	}
	for _, n := range w.nodes {
		if n.twin { // it has ended: see liveFor
			continue
		}
		if f := n.feeds[p]; f != nil && f.epoch == st.Epoch && n.shardOf(p).Load(p) != 0 {
			return fmt.Sprintf("partition %d: node %s still has %d tasks in flight", p, n.name, n.shardOf(p).Load(p))
		}
	}
	return ""
}

// lastOf is the position of a partition's last message.
func lastOf(stream []message, p int) uint64 {
	for i := len(stream) - 1; i >= 0; i-- {
		if stream[i].gone {
			break
		}
		if stream[i].partition == p {
			return uint64(i + 1)
		}
	}
	return 0
}

// check is what must be true at the end.
func (w *World) check() {
	if p, id, left := w.unfinished(); left != "" {
		w.wrong(p, id, "after %v of calm %s", w.cfg.Calm, left)
		return
	}
	for _, id := range w.family() {
		p := w.partitionOf(id)
		r := w.Store.ids[idKey{p, id}]
		if r == nil {
			continue
		}
		if is := w.published.last[id]; is.State != r.task.State || is.EndNumber != r.task.EndNumber {
			w.wrong(p, id, "it is %s, end %d; published was %s, end %d", r.task.State, r.task.EndNumber, is.State, is.EndNumber)
		}
		w.checkBooks(&r.task, r.task.Round, r.task.State)
		if w.cfg.Graph && !r.purged {
			w.checkFamily(&r.task)
		}
	}
	w.checkOrphans()
	w.checkBoth()
}

// Story is the history of every task, by number: the whole run.
func (w *World) Story() string {
	story := ""
	for p := range w.cfg.Partitions {
		for _, r := range w.Store.byNumber[p] {
			story += w.Store.History(p, r.task.ID)
		}
	}
	return story
}

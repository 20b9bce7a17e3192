package sim

import (
	"context"
	"errors"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
)

// commit is a commit at the moment it is decided, with what must be true of it.
// The rows themselves are held to their journal by the store: see
// MemStore.verify, referee and recorded.
func (w *World) commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	before := make([]core.PartitionState, len(b.Partitions))
	for i := range b.Partitions {
		before[i] = *w.Store.partition(b.Partitions[i].Partition)
		w.noteFormer(&before[i], &b.Partitions[i])
	}
	parked := w.claimables(b)
	res, err := w.tables().Commit(ctx, b)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, core.ErrForeignRow) {
		w.wrongBatch(b, err)
	}
	if err != nil {
		return res, err
	}
	for i := range b.Writes {
		w.gates.wrote[rowKey{b.Writes[i].Task.Partition, b.Writes[i].Task.Number}] = w.now
	}
	w.checkClaims(slices.DeleteFunc(parked, func(c claimable) bool { return slices.Contains(res.Fenced, c.task.Partition) }))
	for i := range b.Partitions {
		if !slices.Contains(res.Fenced, b.Partitions[i].Partition) {
			w.moved(&before[i], &b.Partitions[i])
		}
	}
	return res, nil
}

// wrongBatch blames the one task that a commit of several broke.
func (w *World) wrongBatch(b *core.Batch, err error) {
	for i := range b.Writes {
		if t := b.Writes[i].Task; w.Store.blamed == t.ID || len(b.Writes) == 1 {
			w.wrong(t.Partition, t.ID, "%v", err)
		}
	}
	w.wrong(b.Partitions[0].Partition, "", "%v", err)
}

// noteFormer notes an owner that did not hear of its successor, where SQL went back to a time before that one. Its first rows
// are judged by it, too.
func (w *World) noteFormer(was *core.PartitionState, is *core.PartitionWrite) {
	if is.Epoch == was.Epoch && is.Epoch < w.tops[is.Partition] {
		w.note(FormerOwner)
		w.forgot.former[is.Partition] = true
	}
}

// moved checks a partition's own row: only the owner of the present epoch moves
// it; the cursor passes what has come to something durable and nothing else; the
// publishedThrough passes what the event stream has stored.
func (w *World) moved(was *core.PartitionState, is *core.PartitionWrite) {
	p := is.Partition
	w.tops[p] = max(w.tops[p], is.Epoch)
	if is.Epoch != was.Epoch {
		w.wrong(p, "", "epoch %d commits to partition %d while its epoch is %d", is.Epoch, p, was.Epoch)
	}
	if is.Cursor < was.Cursor || is.ControlCursor < was.ControlCursor || is.Told < was.Told || is.NextNumber < was.NextNumber || is.NextEnd < was.NextEnd {
		w.wrong(p, "", "the row of partition %d goes back: %+v after %+v", p, *is, *was)
	}
	switch {
	case !w.readsTasks(was.Stream) || w.astray[p]: // its owner has not seen yet that its stream is another
	case is.Cursor > uint64(len(w.stream)):
		w.wrong(p, "", "the cursor of partition %d is at %d, behind the end of the stream", p, is.Cursor)
	default:
		for i := was.Cursor; i < is.Cursor; i++ {
			if m := w.stream[i]; m.partition == p && !m.gone {
				w.checkSettled(m, "the cursor passes it")
			}
		}
	}
	for end := was.Told + 1; end <= is.Told; end++ {
		if r := w.Store.endedAt(p, end); r != nil && !w.published.ends[endKey{p, end, r.task.ID}] {
			w.wrong(p, r.task.ID, "publishedThrough passes end %d, which the event stream has not stored", end)
		}
	}
}

// checkSettled: what is acknowledged, or behind the cursor, has come to
// something durable.
func (w *World) checkSettled(m message, why string) {
	for i := range m.subs {
		if !w.isDurable(m.partition, &m.subs[i]) {
			w.wrong(m.partition, m.subs[i].ID, "%s, but its task is not stored", why)
		}
	}
}

// acked checks that a message is acknowledged only when all its tasks are there.
//
// What the database has forgotten since is read again from its cursor.
func (w *World) acked(m message) {
	for i := range m.subs {
		if !w.forgot.ids[m.subs[i].ID] && !w.isDurable(m.partition, &m.subs[i]) {
			w.wrong(m.partition, m.subs[i].ID, "a message is acknowledged, but its task is not stored")
		}
	}
}

// recorded sees each journal row at its commit.
func (w *World) recorded(r *row, j *core.Record, answered int64) {
	t := &r.task
	if w.follow != nil {
		w.tell(t.ID, -1, "row %d: %s", j.Seq, recordText(j))
	}
	if answered != 0 && !w.said(commandRef{t.Partition, t.Number, answered, r.commits[answered-1]}, j) {
		w.wrong(t.Partition, t.ID, "row %d is an answer to row %d that no agent gave", j.Seq, answered)
	}
	if j.Kind == core.KindLate || j.Kind == core.KindUndoLate {
		w.checkLate(r, j)
	}
	if j.Kind == core.KindProbed {
		w.checkProbed(r, j)
	}
	w.checkPaused(t, j)
	w.checkShut(t, j)
	w.checkLimit(t, j)
	w.noteMove(t, j)
	w.checkTried(r, j)
	if j.Kind == core.KindExpired && strings.HasPrefix(j.Reason, "the breaker of agent") {
		w.note(BreakerGaveUp)
	}
	w.checkAsk(r, j)
	w.checkSignalled(r, j)
	w.checkApproved(r, j)
	if w.cfg.Graph {
		w.checkBorn(r, j)
	}
	if j.Kind == core.KindAccepted {
		w.byHand(t, j)
	}
	if j.Kind == core.KindAccepted || j.Kind == core.KindResolved {
		w.handled[t.ID] = true
	}
	if t.Parent != 0 && j.Seq == 1 {
		w.checkBirth(t)
	}
	if j.Kind == core.KindResolved {
		w.settle(t, j.Round)
	}
	if endsBy(j) {
		w.endedAt[t.ID] = append(w.endedAt[t.ID], w.now)
	}
	if which := w.refusedOf(t.ID); j.Kind == core.KindPoisoned && t.PlanVersion != 0 && (which == 0 || which > 5) {
		w.wrong(t.Partition, t.ID, "row %d blames the task, which the database has never refused", j.Seq)
	}
	if w.load != nil {
		w.load.recorded(r, j)
	}
	switch {
	case j.State == core.StatePending && t.WaitsFor != "":
		w.note(WindowFull) // or paused
	case endsBy(j) && j.State != core.StateError:
		w.checkBooks(t, j.Round, j.State)
	}
	if (j.Kind == core.KindCancelled || j.Kind == core.KindUndoAsked) && r.referee.working(w.Store.planOf(r)) {
		w.note(UndoOfRunning)
	}
}

// said reports whether an agent gave the answer that a row records.
func (w *World) said(at commandRef, j *core.Record) bool {
	return slices.ContainsFunc(w.spoken[at], func(code int) bool {
		switch j.Kind {
		case core.KindUnserved, core.KindUndoUnserved:
			return core.BusyCode(code) && code == j.Code
		case core.KindDone, core.KindUndone:
			return code == 0
		case core.KindLate, core.KindUndoLate:
			return code == j.Code
		case core.KindRefused, core.KindUndoRefused:
			return core.FinalCode(code) && code == j.Code
		}
		return code != 0 && !core.FinalCode(code) && code == j.Code
	})
}

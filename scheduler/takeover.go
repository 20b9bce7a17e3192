package scheduler

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// Adopted is a partition that was taken over: where its readers begin, and what was resumed.
type Adopted struct {
	Epoch         int64
	Cursor        uint64 // of the task stream
	ControlCursor uint64
	// CursorStored and ControlStored are when the streams stored the messages at the cursors; 0: not known.
	CursorStored  core.Instant
	ControlStored core.Instant
	// Stream identifies the stream that the cursors belong to, as Wires.Ground named it.
	Stream string
	// Resumed counts the tasks in flight.
	Resumed int
}

// Ground is what a takeover learns about a partition outside the database, to notice a database or a stream
// that went back.
type Ground struct {
	// Stream identifies the task stream as it is now.
	Stream string
	// End is the position of the partition's last message in it.
	End uint64
	// Evidence is of the owner that recorded last, Former of the last owner that lost the partition.
	Evidence core.Evidence
	Former   core.Evidence

	// At is when this was looked at.
	At core.Instant
	// Again looks once more; nil: nothing changes meanwhile.
	Again func(context.Context) (Ground, error)
}

// groundMaxAge is how old a Ground may be when the takeover commits, before it is looked at again.
const groundMaxAge = 100 * time.Millisecond

// Adopt takes a partition over: it raises the epoch, which locks out any other
// owner; rebuilds from the journal the tasks that have a command out; sends
// those commands again, with the same attempt and key; and publishes again what
// ended after publishedThrough. Replies must be subscribed to before it is called.
//
// If the store's cursors belong to another stream they start from its beginning. If there is evidence of commits that the
// store does not have, tasks note what may have run in the lost time. Both are alerts.
func (s *Shard) Adopt(ctx context.Context, now core.Instant, id int, g Ground) (Adopted, error) {
	st, err := s.evidence.claim(ctx, now, id, &g, core.First{})
	if err == nil && g.Again != nil && (st.Found.WentBack || s.cfg.Now() > g.At.Add(groundMaxAge)) {
		st, err = s.evidence.reclaim(ctx, st, &g)
	}
	if err != nil {
		return Adopted{}, fmt.Errorf("take over partition %d: %w", id, err)
	}
	s.evidence.warn(&st, &g)
	s.begin(s.cfg.Now(), &Mail{}, false) // the clock is read again: until this moment the former owner may have sent retries
	p := newPartition(st, s.cfg, &s.gate.agents, &s.wakes)
	p.rewound = max(g.Evidence.Rewound, g.Former.Rewound)
	if s.evidence.rewound[id].tasks || st.Found.Cursor > 0 && st.Cursor == 0 {
		p.rewound = p.epoch
	}
	if st.WentBackAt != 0 {
		p.rereadUntil(min(st.WentBackUntil, g.End))
	}
	delete(s.evidence.doubted, id)
	delete(s.evidence.rewound, id)
	s.bus.Record([]core.Evidence{p.evidence(now)})
	s.put(p)
	if err := s.rebuild(ctx, p); err != nil {
		s.gate.backOutAll(p) // nothing has left
		s.Drop(id)
		s.cycle.endRound()
		return Adopted{}, fmt.Errorf("rebuild partition %d: %w", id, err)
	}
	s.gate.agents.begin()
	s.gate.agents.free(id) // its commands are counted again
	if len(s.gate.agents.limited) > 0 {
		s.gate.nextRound.wake(s.cycle.now) // a round reports both to the node
	}
	if err = stillOurs(ctx, s.store, p.asOf()); err == nil {
		err = s.publish(ctx)
	}
	s.endRound()
	if err != nil {
		s.Drop(id)
		return Adopted{}, fmt.Errorf("resume partition %d: %w", id, err)
	}
	return Adopted{
		Epoch: p.epoch, Cursor: p.cursor, ControlCursor: p.control, CursorStored: p.cursorStored, ControlStored: p.controlStored,
		Stream: g.Stream, Resumed: len(p.tasks),
	}, nil
}

// claim takes a partition over in the store, given what was learned outside the database.
func (b *evidenceBook) claim(ctx context.Context, now core.Instant, id int, g *Ground, first core.First) (core.PartitionState, error) {
	if known := b.lost[id]; known.Newer(g.Evidence) {
		known.Rewound = max(known.Rewound, g.Evidence.Rewound)
		g.Evidence = known
	}
	return b.store.TakeOver(ctx, id, core.Claim{
		Owner: b.cfg.Node, Commit: b.cfg.IDs.Next(), At: now, Stream: g.Stream, End: g.End, Evidence: g.Evidence, Former: g.Former, WentBack: b.doubted[id],
		RewoundTasks: b.rewound[id].tasks, RewoundControl: b.rewound[id].control,
		Provisional: g.Again != nil && first == (core.First{}), First: first,
	})
}

// reclaim takes the partition over a second time, with a Ground that was looked at after the first takeover.
// A Ground from before it may be older than the database's going back: this node may have stood still in
// between, while others owned the partition and read on, and all of that may be lost. Whatever is looked at
// after the first takeover cannot be that old, provided that the row is still as the first takeover left it;
// the second takeover checks that.
func (b *evidenceBook) reclaim(ctx context.Context, first core.PartitionState, g *Ground) (core.PartitionState, error) {
	now, err := g.Again(ctx)
	if err != nil {
		return first, err
	}
	*g = now
	as := core.AsOf{Partition: first.Partition, Epoch: first.Epoch, Commit: first.LastCommit}
	// Not of a successor's evidence: it takes over before it records.
	if err := stillOurs(ctx, b.store, as); err != nil {
		return first, err
	}
	found := first.Found
	if found.WentBack || core.WentBack(found.Epoch, found.Commit, g.Evidence) || core.WentBack(found.Epoch, found.Commit, g.Former) {
		b.doubted[first.Partition] = true
	}
	st, err := b.claim(ctx, b.cfg.Now(), first.Partition, g, core.First{Epoch: first.Epoch, Commit: first.LastCommit, Until: found.Until, Found: found.Epoch})
	if err == nil {
		err = as.Check(st.Found.Epoch, st.Found.Commit)
	}
	found.WentBack = st.Found.WentBack
	st.Found = found // the row as it was before the first takeover
	return st, err
}

// warn logs what a takeover did not find although it should be there.
func (b *evidenceBook) warn(st *core.PartitionState, g *Ground) {
	ended := b.rewound[st.Partition]
	if st.Cursor == 0 && st.Found.Cursor > 0 {
		b.alertStream("task", st, st.Found.Cursor, !ended.tasks)
	}
	if st.ControlCursor == 0 && st.Found.ControlCursor > 0 {
		b.alertStream("control", st, st.Found.ControlCursor, !ended.control)
	}
	if st.Found.WentBack {
		b.log.Error("ALERT: the database went back: commits are missing from it. What may have run since runs again by the same keys, or is undone by key",
			"event", "database-went-back", "partition", st.Partition, "epoch_found", st.Found.Epoch, "commit_found", st.Found.Commit, "epoch_known", g.Evidence.Epoch,
			"commit_known", g.Evidence.Commit, "known_at", g.Evidence.At.Time(), "read_again_from", st.Cursor, "until", g.End)
	}
}

// stillOurs checks that the rows just loaded are not a successor's. An owner that stood still between taking
// over and loading would resend commands while its successor does not know of the copies. Everything else
// that leaves follows a commit, which is fenced.
func stillOurs(ctx context.Context, store Store, as core.AsOf) error {
	states, err := store.CursorsOf(ctx, []int{as.Partition}, "")
	if err != nil {
		return err
	}
	for i := range states {
		if err := as.Check(states[i].Epoch, states[i].LastCommit); err != nil {
			return err
		}
	}
	return nil
}

// rebuild loads the partition's tasks in flight and resumes them, and begins to publish endings again.
func (s *Shard) rebuild(ctx context.Context, p *partition) error {
	agents, err := s.store.WaitingAgents(ctx, p.asOf())
	if err != nil {
		return err
	}
	for _, a := range agents {
		p.slot(a).queue()
	}
	for after := int64(0); ; {
		saved, err := s.store.LoadActive(ctx, p.asOf(), after, loadPage)
		if err != nil {
			return err
		}
		if err := s.loadParents(ctx, p, saved); err != nil {
			return err
		}
		for i := range saved {
			after = saved[i].Row.Number
			if err := s.resume(ctx, p, &saved[i]); err != nil {
				return err
			}
		}
		p.dropIdle()
		s.cycle.forgetGone()
		if len(saved) < loadPage {
			break
		}
	}
	if err := s.families.resumeFresh(ctx, p); err != nil {
		return err
	}
	p.republish(true)
	return s.endings.page(ctx, s.cycle, p)
}

// resume sends again what a loaded task has out.
func (s *Shard) resume(ctx context.Context, p *partition, saved *core.Saved) error {
	e, err := s.load(ctx, p, saved)
	if err != nil || e == nil {
		return err
	}
	if e.plan == nil { // it is not known at which agents it has commands out
		p.leaveUncounted(saved)
		return nil
	}
	if e.rests() { // there may be more of its kind than memory holds
		s.families.lookLater(p, e, s.cycle.now)
		p.finds()
		p.idles(e)
		return nil
	}
	core.Resume(e.plan.plan, e.task, s.cycle.now, &s.cycle.out)
	s.cycle.resuming = true
	s.keep(p, e, false)
	s.cycle.resuming = false
	return nil
}

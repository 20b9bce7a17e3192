package scheduler

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// Adopted says where the readers of a partition begin.
type Adopted struct {
	Epoch         int64
	Cursor        uint64 // of the task stream
	ControlCursor uint64
	CursorStored  core.Instant // when the streams took the messages there; 0: not known
	ControlStored core.Instant
	Stream        string // that the cursors belong to, as Wires.Ground named it
	Resumed       int    // tasks in flight
}

// Ground is what a takeover finds outside the database.
type Ground struct {
	Stream   string        // identity of the task stream now
	End      uint64        // position of the partition's last message in it
	Evidence core.Evidence // of the owner that recorded last
	Former   core.Evidence // of the last owner that lost it

	At    core.Instant                          // when it was looked at
	Again func(context.Context) (Ground, error) // looks again; nil: what there is does not change meanwhile
}

// groundMaxAge is how old what was looked at may be when the takeover is committed.
const groundMaxAge = 100 * time.Millisecond

// Adopt takes a partition over: it raises the epoch, which locks out any other
// owner; rebuilds from the journal the tasks that have a command out; sends
// those commands again, with the same attempt and key; and publishes again what
// ended after publishedThrough. Replies must be subscribed to before it is called.
//
// When the store's cursors belong to another stream they start afresh, and when there
// is evidence of commits that the store does not have, what may have run then is noted:
// both are alerts.
func (s *Shard) Adopt(ctx context.Context, now core.Instant, id int, g Ground) (Adopted, error) {
	st, err := s.evidence.claim(ctx, now, id, &g, core.First{})
	if err == nil && g.Again != nil && (st.Found.WentBack || s.cfg.Now() > g.At.Add(groundMaxAge)) {
		st, err = s.evidence.reclaim(ctx, st, &g)
	}
	if err != nil {
		return Adopted{}, fmt.Errorf("take over partition %d: %w", id, err)
	}
	s.evidence.warn(&st, &g)
	s.begin(s.cfg.Now(), &Mail{}, false) // not now: until this moment the former owner may have sent retries
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
		s.gate.backOutAll(p) // nothing has left, and what was out before is where it was
		s.Drop(id)
		s.cycle.endRound()
		return Adopted{}, fmt.Errorf("rebuild partition %d: %w", id, err)
	}
	s.gate.agents.begin()
	s.gate.agents.free(id) // its commands are counted again
	if len(s.gate.agents.limited) > 0 {
		s.gate.nextRound.wake(s.cycle.now) // the node hears of both
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

// claim takes a partition over on what was found outside the database.
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

// reclaim takes a partition over once more, on what is outside the database now. What was looked at before the first
// takeover may be older than the database's going back: this node stood still in between, others owned the partition
// meanwhile and read on, and all that is lost. What is looked at after it is not, if the row is then as the first left it:
// the second takeover finds out again.
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
	st.Found = found // the row as it was before this node
	return st, err
}

// warn logs that a takeover did not find what there should be.
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

// stillOurs makes sure that what was loaded is not a successor's: an owner that stood still between taking over and
// loading would send commands of which its successor does not know that they are sent twice. Nothing else leaves
// without a commit, which is fenced.
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

func (s *Shard) resume(ctx context.Context, p *partition, saved *core.Saved) error {
	e, err := s.load(ctx, p, saved)
	if err != nil || e == nil {
		return err
	}
	if e.plan == nil { // at which agents it has commands out is not known
		p.leaveUncounted(saved)
		return nil
	}
	core.Resume(e.plan.plan, e.task, s.cycle.now, &s.cycle.out)
	s.cycle.resumed = saved
	s.keep(p, e, false)
	s.cycle.resumed = nil
	return nil
}

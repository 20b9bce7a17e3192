package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// loadPage is how many tasks, or endings, a takeover reads at a time.
const loadPage = 1000

// Adopted says where the readers of a partition begin.
type Adopted struct {
	Epoch         int64
	Cursor        uint64 // of the task stream
	ControlCursor uint64
	Resumed       int // tasks in hand
}

// Adopt takes a partition over: it raises the epoch, which locks out whoever
// had it; rebuilds from the journal the tasks that have a command out; sends
// those commands again, with the same attempt and key; and tells again what
// ended after the told mark. Replies must be listened to before it is called.
// stream is the identity of the task stream now; when the store's cursors
// belong to another, they start afresh and that is an alert.
func (s *Shard) Adopt(ctx context.Context, now core.Instant, id int, stream string) (Adopted, error) {
	st, err := s.store.TakeOver(ctx, id, s.cfg.Node)
	if err != nil {
		return Adopted{}, fmt.Errorf("take over partition %d: %w", id, err)
	}
	if st.Stream != stream {
		if st.Stream != "" {
			s.log.Error("ALERT: the task stream is not the one this store was fed from; reading it from its beginning",
				"partition", id, "was", st.Stream, "is", stream, "cursor", st.Cursor)
		}
		st.Cursor, st.ControlCursor = 0, 0
		if err := s.store.SetStream(ctx, id, st.Epoch, stream, 0, 0); err != nil {
			return Adopted{}, fmt.Errorf("stream of partition %d: %w", id, err)
		}
	}
	s.turn.begin(now, &Mail{}, false)
	p := newPartition(st)
	s.partitions[id], s.reorder = p, true
	if err := s.rebuild(ctx, p); err != nil {
		s.Drop(id)
		s.turn.endRound()
		return Adopted{}, fmt.Errorf("rebuild partition %d: %w", id, err)
	}
	if err = s.stillOurs(ctx, p); err == nil {
		err = s.publish(ctx)
	}
	s.endRound()
	if err != nil {
		s.Drop(id)
		return Adopted{}, fmt.Errorf("resume partition %d: %w", id, err)
	}
	return Adopted{Epoch: p.epoch, Cursor: p.cursor, ControlCursor: p.control, Resumed: len(p.tasks)}, nil
}

// stillOurs makes sure that what was loaded is not a successor's: an owner that
// stood still between taking over and loading would send commands that its
// successor does not know to be in two pairs of hands. Nothing else leaves
// without a commit, which is fenced.
func (s *Shard) stillOurs(ctx context.Context, p *partition) error {
	states, err := s.store.Cursors(ctx)
	if err != nil {
		return err
	}
	for i := range states {
		if states[i].Partition == p.id && states[i].Epoch != p.epoch {
			return fmt.Errorf("it was taken over under epoch %d while epoch %d loaded it", states[i].Epoch, p.epoch)
		}
	}
	return nil
}

func (s *Shard) rebuild(ctx context.Context, p *partition) error {
	agents, err := s.store.WaitingAgents(ctx, p.id)
	if err != nil {
		return err
	}
	for _, a := range agents {
		p.park[p.slot(a)] = true
	}
	for after := int64(0); ; {
		saved, err := s.store.LoadActive(ctx, p.id, after, loadPage)
		if err != nil {
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
	return s.tellAgain(ctx, p)
}

func (s *Shard) resume(ctx context.Context, p *partition, saved *core.Saved) error {
	e, err := s.revive(ctx, p, saved)
	if err != nil || e == nil {
		return err
	}
	if e.plan == nil {
		return nil
	}
	core.Resume(e.plan.plan, e.task, s.turn.now, &s.turn.out)
	s.keep(p, e, false)
	return nil
}

// tellAgain tells what ended after the told mark, to the event stream and to who
// submitted it. A number that was given but
// is not in the store (a birth that was a duplicate, a task that was taken up
// again) needs no telling, and must not hold the mark back.
func (s *Shard) tellAgain(ctx context.Context, p *partition) error {
	last := p.told.mark
	for {
		endings, err := s.store.Untold(ctx, p.id, last, loadPage)
		if err != nil {
			return err
		}
		for i := range endings {
			e := &endings[i]
			p.told.skip(last+1, e.EndNumber)
			last = e.EndNumber
			s.notify(p, e.ReplyTo, core.Status{ID: e.ID, Type: e.Type, Status: string(e.State), Error: e.Error, At: e.At})
		}
		if len(endings) > 0 {
			s.Stats.Retold += int64(len(endings))
			s.tell(p, endings)
		}
		if len(endings) < loadPage {
			p.told.skip(last+1, p.nextEnd)
			return nil
		}
	}
}

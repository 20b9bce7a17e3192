package sim

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// nodeBus is the network as one life of a node sees it. It holds whatever leaves
// to the rule: only what is committed may.
type nodeBus struct {
	w    *World
	n    *node
	life int
}

func (b *nodeBus) Send(cmds []core.Command) {
	for _, c := range cmds {
		if !b.w.Store.issued(&c) {
			b.w.wrong(c.Partition, c.Task, "a command left that is not committed: %+v", c)
		}
		c.Results = slices.Clone(c.Results)
		switch {
		case b.w.fault(0.04): // lost
		case b.w.fault(0.04):
			b.w.after(b.w.delay(), func() { b.unserved(&c) })
		default:
			b.w.after(b.w.delay(), func() { b.w.work(c) })
			if b.w.books.tombstones && b.w.fault(0.05) {
				b.w.after(b.w.upTo(c.Left+slow), func() { b.w.work(c) })
			}
		}
	}
}

func (b *nodeBus) unserved(c *core.Command) {
	if b.n.life == b.life && b.n.feeds[c.Partition] != nil {
		b.n.mail.Unserved = append(b.n.mail.Unserved, scheduler.ReplyMail{
			At: b.w.now, Reply: core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq},
		})
		b.n.wake()
	}
}

// Tell stores endings; in the storm it may fail, before or after it has.
func (b *nodeBus) Tell(endings []core.Ending, done func(error)) {
	for i := range endings {
		e := &endings[i]
		if t := b.w.Store.Task(e.Partition, e.ID); t == nil || t.Seq < e.Seq || !e.State.Ended() {
			b.w.wrong(e.Partition, e.ID, "an ending is told that is not committed: %+v", *e)
		}
	}
	stored, confirmed := !b.w.fault(0.1), !b.w.fault(0.1)
	b.w.after(b.w.delay(), func() {
		if !stored {
			done(errFault)
			return
		}
		for _, e := range endings {
			if b.w.told[e.ID].EndNumber <= e.EndNumber {
				b.w.told[e.ID] = e
			}
		}
		if !confirmed {
			done(errFault)
			return
		}
		done(nil)
	})
}

func (b *nodeBus) Refuse(context.Context, []core.Status) error {
	if b.w.fault(0.1) {
		return errFault
	}
	return nil
}

func (b *nodeBus) Notify(_ string, s core.Status) { b.Live(s) }

// Live checks that nobody hears of what is not committed.
func (b *nodeBus) Live(s core.Status) {
	if s.Status != core.StatusRefused && b.w.Store.Task(b.w.partitionOf(s.ID), s.ID) == nil {
		b.w.wrong(b.w.partitionOf(s.ID), s.ID, "a status left that is not committed: %+v", s)
	}
}

func (b *nodeBus) Dead(context.Context, int, core.Submission, string) error {
	b.w.dead++
	return nil
}

// faultyStore fails reads now and then, and loses the answer of a takeover.
type faultyStore struct {
	*MemStore
	w *World
}

func (s faultyStore) TakeOver(ctx context.Context, p int, owner string) (core.PartitionState, error) {
	st, err := s.MemStore.TakeOver(ctx, p, owner)
	return st, s.or(err)
}

func (s faultyStore) LoadNumbers(ctx context.Context, p int, numbers []int64) ([]core.Saved, error) {
	saved, err := s.MemStore.LoadNumbers(ctx, p, numbers)
	return saved, s.or(err)
}

func (s faultyStore) LoadIDs(ctx context.Context, p int, ids []string) ([]core.Saved, error) {
	saved, err := s.MemStore.LoadIDs(ctx, p, ids)
	return saved, s.or(err)
}

func (s faultyStore) LoadActive(ctx context.Context, p int, after int64, limit int) ([]core.Saved, error) {
	saved, err := s.MemStore.LoadActive(ctx, p, after, limit)
	return saved, s.or(err)
}

func (s faultyStore) Waiting(ctx context.Context, p int, agent string, after int64, limit int) ([]int64, error) {
	numbers, err := s.MemStore.Waiting(ctx, p, agent, after, limit)
	return numbers, s.or(err)
}

func (s faultyStore) or(err error) error {
	if err == nil && s.w.fault(0.01) {
		return errFault
	}
	return err
}

// slow is how much later than its complete-by a try without an answer may still
// take effect: the grace of every plan here.
const slow = 200 * time.Millisecond

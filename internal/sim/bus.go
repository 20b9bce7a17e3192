package sim

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// nodeBus is the network as one life of a node sees it. It holds whatever leaves
// to the rule: only what is committed may. The node may die before each effect.
type nodeBus struct {
	w    *World
	n    *node
	life int
}

func (b *nodeBus) Send(cmds []core.Command) {
	w := b.w
	for _, c := range cmds {
		b.n.point()
		w.checkSend(b.n, &c)
		c.Results = slices.Clone(c.Results)
		w.tell(c.Task, -1, "%s sends %s of %s, attempt %d, row %d, by %s", b.n.name, what(c.Undo), c.Key(), c.Attempt, c.Seq, w.stamp(c.CompleteBy))
		b.carry(c)
	}
}

// carry is the command's way. A bridge that doubles commands hides from the
// server that no agent listens.
func (b *nodeBus) carry(c core.Command) {
	w, era := b.w, b.w.era
	switch {
	case w.fault(CommandLost):
	case w.fault(CommandUnserved):
		w.after(w.delay(), func() { b.unserved(&c) })
	case w.books.tombstones && w.fault(CommandDoubled):
		w.after(w.delay(), func() { _ = w.era == era && w.work(c) })
		w.after(w.upTo(c.Left+20*time.Millisecond), func() { _ = w.era == era && w.work(c) })
	default:
		w.after(w.delay(), func() {
			if w.era == era && !w.work(c) {
				b.unserved(&c)
			}
		})
	}
}

func what(undo bool) string {
	if undo {
		return "undo"
	}
	return "do"
}

func (b *nodeBus) unserved(c *core.Command) {
	b.w.retryOver(c)
	if b.n.life == b.life && b.n.feeds[c.Partition] != nil {
		b.w.tell(c.Task, -1, "%s hears that no agent listens to row %d", b.n.name, c.Seq)
		b.n.feeds[c.Partition].in.Unserved(core.Reply{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: tokenOf(c.Seq, c.Commit, c.Copy)})
		b.n.loopOf(c.Partition).wake()
	}
}

// Publish stores endings; in the storm it may fail, before or after it has, and the
// event stream may be down for a while.
func (b *nodeBus) Publish(endings []core.Ending, confirmed func(error)) {
	w := b.w
	b.n.point()
	done := func(err error) {
		confirmed(err)
		for _, l := range b.n.loops { // of a later life, perhaps, which looks in vain
			l.wake()
		}
	}
	for i := range endings {
		w.checkPublish(&endings[i])
	}
	stored, answered, era := !w.fault(PublishFails), !w.fault(PublishAnswerLost), w.era
	w.after(w.delay(), func() {
		if !stored || w.now < w.eventsDown {
			done(errFault)
			return
		}
		if w.era == era {
			for i := range endings {
				w.keepEnding(&endings[i])
			}
		}
		if !answered {
			done(errFault)
			return
		}
		done(nil)
	})
}

// Refuse tries until the event stream takes it, as the real one does.
func (b *nodeBus) Refuse(_ context.Context, refused []core.Status) error {
	b.persist()
	for i := range refused {
		b.w.refused[refused[i].ID] = true
		b.w.tell(refused[i].ID, -1, "refused: %s", refused[i].Error)
	}
	b.n.point()
	return nil
}

// Dead stores a dead letter.
func (b *nodeBus) Dead(_ context.Context, _ int, sub core.Submission, cause string) error {
	b.persist()
	b.w.dead[sub.ID] = true
	b.w.tell(sub.ID, -1, "a dead letter: %s", cause)
	return nil
}

func (b *nodeBus) persist() {
	w := b.w
	b.n.point()
	for w.now < w.eventsDown || w.fault(RefuseFails) {
		w.wait(100 * time.Millisecond)
		b.n.point()
	}
}

func (b *nodeBus) Notify(_ string, s core.Status) { b.Live(s) }

// Live checks that no status leaves that is not committed.
func (b *nodeBus) Live(s core.Status) {
	b.n.point()
	w := b.w
	if p := w.partitionOf(s.ID); s.Status != core.StatusRefused && w.Store.ids[idKey{p, s.ID}] == nil && !w.forgot.ids[s.ID] {
		w.wrong(p, s.ID, "a status left that is not committed: %+v", s)
	}
}

// Record keeps evidence soon, or never.
func (b *nodeBus) Record(all []core.Evidence) {
	w := b.w
	b.n.point()
	if w.fault(EvidenceLost) {
		return
	}
	w.after(w.delay(), func() {
		for _, e := range all {
			if e.Former {
				w.former[e.Partition] = e
			} else if e.Newer(w.evidence[e.Partition]) {
				w.evidence[e.Partition] = e
			}
			w.hearEvidence(e)
		}
	})
}

// hearEvidence is the watch that every node keeps.
func (w *World) hearEvidence(e core.Evidence) {
	for _, n := range w.nodes {
		n.sched.Heard(e)
		n.loopOf(e.Partition).wake()
	}
}

// stopEvents lets the event stream be down for a while.
func (w *World) stopEvents() {
	if w.fault(EventsDown) {
		w.after(w.upTo(w.cfg.Storm), func() { w.eventsDown = w.now.Add(w.upTo(time.Second)) })
	}
}

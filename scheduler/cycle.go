package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// RunCycle is one commit cycle: it handles everything in the mail and every wake that is due, in as many commits as the
// batch limit asks for, and returns when all effects are out, with the partitions that are not this shard's any more.
// With flush it also commits what only moves cursors.
//
// An error says what it stops: see core.Fault. One that stops a partition drops that one, with what the round would have
// written of it, and the cycle goes on with the others. Otherwise the outcome of a commit is a bug or unknown, a message
// which must not be lost could not be stored, the store does not answer, or the context ended: every partition of the
// shard is dropped then.
func (s *Shard) RunCycle(ctx context.Context, now core.Instant, mail *Mail, flush bool) (lost []int, err error) {
	s.begin(now, mail, flush)
	for more := true; more && err == nil; {
		more, err = s.round(ctx)
	}
	if err != nil {
		s.abandon()
		return s.cycle.lost, fmt.Errorf("commit cycle of %d partitions: %w", len(s.cycle.lost), err)
	}
	mail.reset()
	return s.cycle.lost, s.cycle.failed
}

// round makes one commit and what follows from it. more: there is mail for another one.
func (s *Shard) round(ctx context.Context) (more bool, err error) {
	for more, err = s.apply(ctx); err != nil; more, err = s.apply(ctx) {
		if ctx.Err() != nil || !s.stop(err) {
			for _, p := range s.inOrder() { // nothing of the round is stored
				s.gate.backOutAll(p)
			}
			return false, err
		}
	}
	if s.fill() {
		if err = s.commit(ctx); err != nil {
			return false, err
		}
	}
	if err = s.publish(ctx); err != nil {
		return false, err
	}
	s.acknowledge()
	room := s.queues.queueParked(s.cycle)
	s.endRound()
	return more || room || len(s.families.unheard) > 0, nil // a refused row may have ended a child, whose parent is told next
}

// begin sets up a cycle that happens at now.
func (s *Shard) begin(now core.Instant, mail *Mail, flush bool) {
	c := s.cycle
	c.looked = false
	if back := now - c.now; back < 0 {
		s.setBack(back)
	}
	s.gate.now, s.plans.now = now, now
	c.now, c.mail, c.flush, c.lost, c.stopped, c.failed, c.answers, c.late = now, mail, flush, nil, nil, nil, 0, 0
	c.pos.published, c.pos.control, c.pos.number, c.pos.reply, c.pos.unserved, c.pos.probed, c.pos.task, c.pos.sub = 0, 0, 0, 0, 0, 0, 0, 0
}

// setBack shifts every instant that the shard noted in memory, because the machine's clock was set back; by
// is negative. Instants that are stored, or come from others, stay.
func (s *Shard) setBack(by core.Instant) {
	for _, w := range s.everyWaker() {
		w.setBack(by)
	}
	for _, a := range s.gate.agents.all {
		if a.limit != nil {
			a.limit.setBack(by)
		}
		for _, k := range a.keys {
			k.limit.setBack(by)
		}
	}
}

package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// apply has the core decide about the mail, in the order controls, replies, wakes, parked tasks, new work,
// until the batch is full or the mail is done.
func (s *Shard) apply(ctx context.Context) (full bool, err error) {
	c := s.cycle
	if c.mail.PlansChanged {
		s.plans.old = true
		c.mail.PlansChanged = false
	}
	s.gate.agents.listen(s.inOrder())
	s.queues.applyPauses(c.mail)
	if c.mail.Breakers != nil {
		s.gate.agents.set(*c.mail.Breakers)
		c.mail.Breakers = nil
	}
	s.queues.applyLimits(c.mail)
	if err := s.endings.confirmed(ctx, c, s.owned); err != nil {
		return false, err
	}
	s.evidence.record(c.now, s.inOrder())
	s.families.relay()
	first := s.families.newFansNext
	s.families.newFansNext = nil
	if err := s.families.bearFirst(ctx, first); err != nil {
		return false, err
	}
	for _, part := range []func(context.Context) (bool, error){
		s.applyControls, s.applyReplies, s.applyUnserved, s.applyProbed, s.applyWakes, s.applyServed, s.applyWaiting, s.families.apply, s.applyTasks,
	} {
		if full, err = part(ctx); full || err != nil {
			break
		}
	}
	for err == nil && len(c.newFans) > 0 {
		first := c.newFans
		c.newFans = nil
		err = s.families.bearFirst(ctx, first)
	}
	return full || s.deferredReady(c.now, s.plans) || s.families.ready() || len(s.families.unheard) > 0, err
}

// addressed returns the step whose command, now out, has the number of a reply, and the step for which the
// reply says something: the same one, or one whose late answer may still count. -1: none.
func addressed(e *entry, m *ReplyMail) (out, of int) {
	out = e.task.OutSeq(m.Reply.Seq)
	if of = out; of < 0 {
		of = e.task.LateOf(m.Reply.Seq, m.At)
	}
	return out, of
}

// genuine reports whether a reply comes from whoever got the command of that step. One that is addressed to
// no step passes: it is stale anyway.
func (s *Shard) genuine(e *entry, r *core.Reply, of int) bool {
	if s.cfg.Genuine == nil || of < 0 || s.cfg.Genuine(r, e.commitOf(r.Seq)) {
		return true
	}
	s.Stats.Forged++
	if n := s.Stats.Forged; n&(n-1) == 0 { // a forger must not fill the log
		s.log.Warn("a reply answers no command of ours; it is passed over", "partition", r.Partition, "task", e.task.ID, "seq", r.Seq, "so_far", n)
	}
	return false
}

// applyReplies applies agents' answers. An answer never brings a task back into memory.
func (s *Shard) applyReplies(context.Context) (bool, error) {
	c := s.cycle
	if c.mail.lost > 0 {
		s.log.Warn("more replies came than this node has memory for; some are lost, and their commands come again", "replies", c.mail.lost)
		c.mail.lost = 0
	}
	for ; c.pos.reply < len(c.mail.Replies); c.pos.reply++ {
		m := &c.mail.Replies[c.pos.reply]
		p, e := s.inFlight(m.Reply.Partition, m.Reply.Number)
		if c.waits(e) {
			return true, nil
		}
		if e == nil {
			s.Stats.Stale++ // a late event for a task that is not in flight never brings it back
			continue
		}
		out, of := addressed(e, m)
		if !s.genuine(e, &m.Reply, of) {
			continue
		}
		s.cycle.use(p, e)
		ev := core.Event{
			Kind: core.EventReply, At: m.At, Actor: s.answerers.name(e, of, m.Reply.From), Seq: m.Reply.Seq, Copy: m.Reply.Token.Copy(),
			Code: m.Reply.Code, Error: m.Reply.Error, Result: m.Reply.Result,
		}
		if out >= 0 && e.plan != nil && e.plan.agents[out] != nil && !core.BusyCode(ev.Code) {
			if left, sure := e.leftAt(out); left != 0 {
				c.answers++
				if e.plan.agents[out].answered(m.At.Sub(left), sure && ev.Code == 0, m.At) {
					c.late++
				}
			}
		}
		boundResult(e, of, &ev)
		var slot *agentSlot
		if out >= 0 && e.plan != nil {
			slot = e.plan.slots[out]
		}
		// Stale replies are counted; nothing else can be wrong with one.
		if err := s.event(p, e, &ev); err == nil && slot != nil && (!core.BusyCode(ev.Code) || ev.Code == core.CodeTooEarly) && len(slot.waiting) > 0 {
			s.queues.serve(slot)
		}
	}
	return false, nil
}

// boundResult turns a result above the step's limit into a failed attempt. Agents built with Duly check that
// themselves, but any NATS client can be an agent.
func boundResult(e *entry, out int, ev *core.Event) {
	if ev.Code != 0 || e.plan == nil || out < 0 {
		return
	}
	if step := &e.plan.plan.Steps[out]; len(ev.Result) > step.ResultMax {
		ev.Code = core.CodeFailed
		ev.Error = fmt.Sprintf("bad_result: result of step %s has %d bytes, the limit is %d", step.Name, len(ev.Result), step.ResultMax)
		ev.Result = nil
	}
}

// applyUnserved applies the news that nobody subscribes to a command's subject.
func (s *Shard) applyUnserved(context.Context) (bool, error) {
	c := s.cycle
	for ; c.pos.unserved < len(c.mail.Unserved); c.pos.unserved++ {
		m := &c.mail.Unserved[c.pos.unserved]
		p, e := s.inFlight(m.Reply.Partition, m.Reply.Number)
		if c.waits(e) {
			return true, nil
		}
		if e == nil {
			continue
		}
		if _, of := addressed(e, m); !s.genuine(e, &m.Reply, of) {
			continue
		}
		s.cycle.use(p, e)
		_ = s.event(p, e, &core.Event{Kind: core.EventUnserved, At: m.At, Actor: s.cfg.Node, Seq: m.Reply.Seq, Copy: m.Reply.Token.Copy()})
	}
	return false, nil
}

// applyWakes wakes the tasks that are due.
func (s *Shard) applyWakes(context.Context) (bool, error) {
	for len(s.wakes) > 0 && s.wakes[0].wakes <= s.cycle.now {
		e := s.wakes[0]
		if s.cycle.waits(e) {
			return true, nil
		}
		p := s.partitions[e.task.Partition]
		p.unwake(e)
		s.cycle.use(p, e)
		if s.event(p, e, &core.Event{Kind: core.EventWake, At: s.cycle.now, Actor: s.cfg.Node}) != nil {
			s.gate.block(p, e) // a takeover has it woken for steps that have no room now
		}
	}
	return false, nil
}

// applyServed lets tasks retry whose agent was away and has answered another task.
func (s *Shard) applyServed(context.Context) (bool, error) {
	for len(s.queues.served) > 0 {
		e := s.queues.served[0]
		p, is := s.inFlight(e.task.Partition, e.task.Number)
		if is == e && s.cycle.waits(e) {
			return true, nil
		}
		if s.queues.served = s.queues.served[1:]; is == e {
			s.cycle.use(p, e)
			_ = s.event(p, e, &core.Event{Kind: core.EventServed, At: s.cycle.now, Actor: s.cfg.Node})
		}
	}
	s.queues.served = nil
	return false, nil
}

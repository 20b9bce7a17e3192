package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// Take-back. Most of what a decision changes waits in lists of the cycle until its row is committed, and is passed over if
// the row is refused: effects, calls, ends, what is parked, positions, acknowledgements. What later decisions of the same
// round depend on changes at once and is noted in inRound. There are three ways out of a round that fails: takeBack, for a
// task whose row is refused; lose, for a partition; abandon, for all partitions.

// takeBack takes back what the round has done with a task whose row is refused. A round may refuse thousands,
// so it does not search the task's effects: publish passes over those older than the refusal, and counts
// their end numbers as published.
//
// Children that the round was creating for the task go with it. A child whose row was committed in an earlier
// part of the batch stays: it depends on an earlier row of its parent.
func (s *Shard) takeBack(p *partition, e *entry) {
	s.gate.backOut(e)
	e.round.refused++
	if e.dropFans(); e.kids == 0 {
		return
	}
	for i := range s.cycle.batch.Writes {
		w := &s.cycle.batch.Writes[i]
		if !w.Birth || w.Task.Parent != e.task.Number || w.Task.Partition != p.id {
			continue
		}
		if kid := p.tasks[w.Task.Number]; kid != nil && s.cycle.makes(kid) && !kid.round.stored {
			s.forsake(p, kid)
		}
	}
}

// forsake takes back and drops a task whose row is refused.
func (s *Shard) forsake(p *partition, e *entry) {
	s.takeBack(p, e)
	p.drop(e)
}

// backOut gives back the places and calls that the round took for a task, unless its row is committed, and
// wants a round in which others may have them.
func (g *gate) backOut(e *entry) {
	if e.round.stored || e.round.places.Empty() && e.round.spent.Empty() || e.plan == nil {
		return
	}
	e.giveBack(e.round.places.And(e.places))
	e.round.spent.Each(e.unspend)
	e.round.places, e.round.spent = core.StepSet{}, core.StepSet{}
	g.nextRound.wake(g.now)
}

// backOutAll is backOut for all tasks of a partition.
func (g *gate) backOutAll(p *partition) {
	for _, e := range p.tasks {
		g.backOut(e)
	}
}

// duplicate drops a new task whose id the commit found to be taken, and answers its submitter.
func (s *Shard) duplicate(dup *core.Duplicate) {
	p, e := s.inFlight(dup.Partition, dup.Number)
	if e == nil {
		return
	}
	s.Stats.Duplicates++
	if e.task.Parent != 0 {
		s.families.childExists(e)
	}
	s.forsake(p, e)
	if e.task.Parent != 0 || len(e.task.InputHash) == 0 {
		return // a fan recounts its child; a task without a hash is a cancel that lost the race against its submission
	}
	sub := submissionOf(e.task)
	s.cycle.answerDuplicate(p, &sub, e.task.InputHash, &dup.Existing)
}

// lose drops a partition whose row is not as this shard left it. The rest of the round goes on without it.
func (s *Shard) lose(p *partition) {
	s.gate.backOutAll(p)
	p.lost = true
	s.log.Debug("the partition's row is not as this node left it: another node has taken it over, or the database went back", "partition", p.id, "epoch", p.epoch)
	s.cycle.lost = append(s.cycle.lost, p.id)
	s.Drop(p.id)
}

// stop drops the one partition that an error stops, with what the round would have written of it. It reports
// false if the error stops more than one partition.
func (s *Shard) stop(err error) bool {
	f := core.FaultOf(err)
	p := s.partitions[f.Partition]
	if f.Stops != core.StopsPartition || p == nil {
		return false
	}
	s.cycle.noteStopped(p.id, err)
	s.cycle.unwrite(p, s.owned)
	s.lose(p)
	return true
}

// unwrite removes a partition's writes from the batch, and tells the other tasks where theirs are now.
func (c *cycle) unwrite(p *partition, in *owned) {
	place, kept := make([]int, len(c.batch.Writes)+1), 0
	for i := range c.batch.Writes {
		w := c.batch.Writes[i]
		if w.Task.Partition == p.id {
			c.bytes -= w.Size()
			continue
		}
		c.batch.Writes[kept] = w
		kept++
		place[i+1] = kept
	}
	clear(c.batch.Writes[kept:])
	c.batch.Writes = c.batch.Writes[:kept]
	moved := map[*entry]bool{}
	move := func(e *entry) {
		if e != nil && !moved[e] {
			moved[e], e.round.write = true, place[e.round.write]
		}
	}
	for _, x := range c.touched {
		move(x.e)
	}
	for i := range c.batch.Writes {
		move(in.stored(&c.batch.Writes[i]))
	}
	for _, e := range p.tasks {
		e.round.write = 0
	}
	c.touched = slices.DeleteFunc(c.touched, func(x touch) bool { return x.p == p })
}

// abandon drops every partition, because memory may be ahead of the store.
func (s *Shard) abandon() {
	for _, p := range s.inOrder() {
		s.evidence.remember(p, s.cycle.now)
		p.forget()
		s.cycle.lost, s.cycle.stopped = append(s.cycle.lost, p.id), append(s.cycle.stopped, p.id)
	}
	s.endings.accepted()
	clear(s.partitions)
	clear(s.plans.refs)
	s.families.forget()
	s.queues.served = nil
	s.reorder, s.endings.nextRound, s.evidence.nextRound = true, waker{}, waker{}
	s.cycle.endRound()
}

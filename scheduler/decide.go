package scheduler

import (
	"errors"
	"slices"

	"duly.dev/duly/internal/core"
)

// Applying an event to a task: the core decides, and the round keeps what follows until the row is committed.

// event applies one event to a task in flight. The task must not have been created in this round. If the task
// may have run in time that the database has lost, its journal notes that first.
func (s *Shard) event(p *partition, e *entry, ev *core.Event) error {
	switch back := p.takeover.WentBackAt; {
	case !p.takeover.MayHaveRun(e.task):
	case e.task.State.Ended(): // a request that takes it up again notes it
		ev.WentBack, ev.At = back, max(ev.At, back)
	default:
		seq := e.task.Seq
		// The task's journal notes that steps may have run of which it does not know.
		_ = s.decide(p, e, &core.Event{Kind: core.EventWentBack, At: max(s.cycle.now, back), Actor: s.cfg.Node, Until: back})
		if ev.IfSeq == seq { // the requester cannot have seen the row just written
			ev.IfSeq = e.task.Seq
		}
	}
	return s.decide(p, e, ev)
}

// decide asks the core about an event and keeps the outcome. An error means that nothing has changed.
func (s *Shard) decide(p *partition, e *entry, ev *core.Event) error {
	plan, had := e.plan.known(), planMarks{plan: e.plan}
	if is := s.cfg.leased(); is != e.leased {
		e.leased = is
		e.task.Doubt(plan, s.cycle.now)
	}
	if to := s.plans.refs[refKey{p.id, ev.Plan}]; to != nil { // the event moves the task to another version
		had = e.replan(to)
	}
	ev.Rand, ev.Node, ev.Ask = s.rand(), s.cfg.Node, s.counting.bind(s.cfg.Expressions, e)
	s.gate.markBlocked(p, e, ev)
	begins, from := e.task.StartAt > e.task.UpdatedAt, e.task.WaitsFor
	if err := core.Apply(plan, e.task, ev, &s.cycle.out); err != nil {
		if e.plan != had.plan {
			e.planBack(had)
		}
		if errors.Is(err, core.ErrStale) {
			s.Stats.Stale++
		}
		return err
	}
	if begins {
		s.Stats.Kinds.countStart(s.cycle.out.Records)
	}
	if e.plan != had.plan {
		e.unblock(e.blocks) // by the new version they may be at other agents
	}
	s.keep(p, e, false)
	s.cycle.unpark(p, e, from)
	e.round.places = e.round.places.AndNot(had.places) // these commands left in an earlier round
	return nil
}

// born brings a newly created task in flight, with the outcome of its creation.
func (s *Shard) born(p *partition, e *entry) {
	e.leased = s.cfg.leased()
	p.add(e)
	s.cycle.use(p, e)
	s.keep(p, e, true)
}

// keep adds the outcome of an event to the round: the records to the batch, effects and calls to the lists
// that wait for the commit. The counters that later decisions of the round depend on change at once; takeBack
// undoes that.
func (s *Shard) keep(p *partition, e *entry, created bool) {
	c := s.cycle
	// In which commit a step began that has a child the parent's row is to say: see resumeFresh.
	c.out.Row = c.out.Row || slices.ContainsFunc(c.out.Effects, func(eff core.Effect) bool {
		return eff.Kind == core.EffectChildren && e.plan.plan.Steps[eff.Step].Kind == core.TaskStep
	})
	if len(c.out.Records) > 0 || c.out.Row {
		p.changes()
		c.write(e, created)
	}
	for i := range c.out.Effects {
		eff := c.out.Effects[i]
		if eff.Kind == core.EffectChildren || eff.Kind == core.EffectUndoChildren {
			s.families.fanOut(p, e, &eff)
			continue
		}
		x := pending{p: p, e: e, effect: eff, refused: e.round.refused}
		if eff.Kind == core.EffectEnded { // each end has a number of its own, also when an operator resolves a task in error
			x.end = p.endNumber()
			e.task.EndNumber = x.end
			if e.parent != nil {
				s.families.noteEnd(p, e)
			}
		}
		c.effects = append(c.effects, x)
	}
	if p.tasks[e.task.Number] == e { // its size may have changed by a result or an input
		p.weigh(e)
	}
	if e.plan != nil {
		c.calls.note(p, e, c.out.Records)
		s.gate.leaveFor(e, &c.out, c.resuming)
	}
	e.pausedRetries.Each(func(i int) {
		if e.task.Steps[i].Awaits == 0 {
			e.pausedRetries.Remove(i)
		}
	})
	at, awaits, unable := e.present()
	p.occupy(e, at)
	if !awaits.Empty() {
		p.wait(e, awaits)
	}
	if !unable.Empty() {
		p.lack(e, unable)
	}
	s.gate.block(p, e)
	if e.task.WaitsFor != "" {
		c.parked = append(c.parked, parked{p, p.slot(e.task.WaitsFor), e})
	}
	s.families.relay()
}

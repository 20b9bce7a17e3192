package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// publish lets the effects of the committed round leave. Refusals go first, because they must be stored
// before their messages are acknowledged; then what leaves one by one; then the endings and the commands,
// each together. It does not wait for endings to be stored: a lost one is published again, because
// publishedThrough does not pass it. A lost command is noticed at its complete-by. A creation is told once:
// work does not wait for the event stream, and every ending says when its task was created.
func (s *Shard) publish(ctx context.Context) error {
	c := s.cycle
	if err := c.refuse(ctx, s.bus); err != nil {
		return err
	}
	s.prove(ctx)
	c.leave = s.cfg.Now()
	for i := 0; i < len(c.effects); i++ { // withdrawRetry adds to them
		x := &c.effects[i]
		s.Stats.Looks++
		if x.p.lost {
			continue
		}
		if x.refused < x.e.round.refused {
			if x.end != 0 {
				x.p.published.add(x.end)
			}
			continue
		}
		if x.effect.Kind == core.EffectEnded {
			if x.end != x.e.task.EndNumber {
				x.p.published.add(x.end) // it was reopened in the same round, so there is nothing to publish
				continue
			}
			x.p.toPublish()
			s.Stats.Kinds.countChild(x.e.task)
			s.tally.countEnd(x.e, c.makes(x.e))
			c.endings = append(c.endings, ending(x))
		}
		s.effect(x)
	}
	s.endings.publish(c.endings, s.inOrder())
	if len(c.created) > 0 {
		s.bus.Publish(c.created, func(error) {})
	}
	if len(c.cmds) > 0 {
		s.bus.Send(c.cmds)
	}
	return nil
}

// refuse stores the round's refusals in the event stream and notifies the submitters.
func (c *cycle) refuse(ctx context.Context, bus Bus) error {
	var refused []core.Status
	for i := range c.refused {
		if !c.refused[i].p.lost {
			refused = append(refused, c.refused[i].status)
		}
	}
	if len(refused) > 0 {
		if err := bus.Refuse(ctx, refused); err != nil {
			return fmt.Errorf("refusals: %w", err)
		}
	}
	for i := range c.notices {
		if n := &c.notices[i]; !n.p.lost {
			bus.Notify(n.subject, n.status)
		}
	}
	return nil
}

// effect carries out one effect. Commands are only collected; publish sends them together.
func (s *Shard) effect(x *pending) {
	task := x.e.task
	switch x.effect.Kind {
	case core.EffectDo, core.EffectUndo:
		if x.effect.Again && (x.p.unproven(s.cycle.leave) || x.effect.Kind == core.EffectDo && !s.gate.mayRetry(x)) {
			s.withdrawRetry(x)
			return
		}
		if x.effect.Step < len(task.Steps) && task.Steps[x.effect.Step].Out == x.effect.Seq {
			s.command(x)
		}
	case core.EffectProbe:
		s.probe(x)
	case core.EffectWake:
		x.p.wake(x.e, x.effect.At)
	case core.EffectAlert:
		s.Stats.UndoTrouble++
		s.alerts.undo(x, s.cycle.now)
	case core.EffectReceived:
		s.tally.counts(x.e).created.Add(1)
		s.cycle.tellCreated(task)
		if task.ReplyTo != "" {
			s.bus.Notify(task.ReplyTo, core.Status{ID: task.ID, Type: task.Type, Status: core.StatusReceived, At: task.UpdatedAt})
		}
	case core.EffectEnded:
		_, why := failureReason(task, x.e.plan)
		status := core.Status{ID: task.ID, Type: task.Type, Status: string(task.State), Error: why, At: task.EndedAt}
		s.bus.Live(status)
		if task.ReplyTo != "" {
			s.bus.Notify(task.ReplyTo, status)
		}
	}
}

// command builds the message for an agent. A command whose complete-by has passed by now does not leave: its
// agent would drop it.
func (s *Shard) command(x *pending) {
	cy := s.cycle
	left := x.effect.At.Sub(cy.leave)
	if left <= 0 {
		x.e.heardAll.Remove(x.effect.Step)
		return
	}
	task, plan := x.e.task, x.e.plan.plan
	step := &plan.Steps[x.effect.Step]
	from := len(cy.results)
	cy.results = task.AppendResults(cy.results, plan, x.e.plan.rides[x.effect.Step])
	c := core.Command{
		Undo: x.effect.Kind == core.EffectUndo, Agent: step.Agent,
		Partition: task.Partition, Number: task.Number, Seq: x.effect.Seq, Commit: x.e.commitOf(x.effect.Seq), Copy: x.effect.Copy,
		Task: task.ID, Type: task.Type, Step: step.Name, Attempt: x.effect.Attempt, Round: task.Round,
		CompleteBy: x.effect.At, Left: left,
		Input: task.InputOf(x.effect.Step), Results: cy.results[from:len(cy.results):len(cy.results)], Trace: task.Trace,
	}
	if c.Undo {
		c.Result = task.Steps[x.effect.Step].Result
		s.Stats.Undo++
	} else {
		s.Stats.Do++
	}
	cy.cmds = append(cy.cmds, c)
}

// ending builds the event of a task's end.
func ending(x *pending) core.Ending {
	t := x.e.task
	step, why := failureReason(t, x.e.plan)
	return core.Ending{
		Partition: t.Partition, EndNumber: t.EndNumber, ID: t.ID, Type: t.Type, State: t.State, Seq: t.Seq,
		Step: step, Error: why, Labels: core.FormatLabels(t.Labels), CreatedAt: t.CreatedAt, At: t.EndedAt,
	}
}

// failureReason returns the step at which a task failed and the error, both empty for a processed task. It
// uses only what memory still has.
func failureReason(t *core.Task, ref *planRef) (step, why string) {
	if t.State == core.StateProcessed {
		return "", ""
	}
	if ref != nil && t.FailedStep > 0 && t.FailedStep <= len(ref.plan.Steps) {
		step = ref.plan.Steps[t.FailedStep-1].Name
	}
	if t.WentBackAt != 0 {
		return step, t.Why + wentBackNote
	}
	return step, t.Why
}

// wentBackNote warns readers who were told another end of the task before the database went back.
const wentBackNote = " (the database went back: what was said of this task before may not hold)"

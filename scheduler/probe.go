package scheduler

import (
	"context"

	"duly.dev/duly/internal/core"
)

// probe asks an agent what became of a do that it did not answer.
func (s *Shard) probe(x *pending) {
	task, at := x.e.task, x.effect.Step
	left := x.effect.At.Sub(s.cycle.leave)
	if x.e.plan == nil || left <= 0 || task.AskedOf(x.e.plan.plan, x.effect.Seq) != at {
		return
	}
	plan := x.e.plan.plan
	step := &plan.Steps[at]
	partition, epoch, number, seq := task.Partition, x.p.epoch, task.Number, x.effect.Seq
	s.bus.Probe(Question{ResultMax: step.ResultMax, Quiet: task.ProbeQuiet(at), Command: core.Command{
		Agent: step.Agent, Partition: partition, Number: number, Seq: seq, Commit: x.e.commitOf(seq), Task: task.ID, Type: task.Type,
		Step: step.Name, Attempt: x.effect.Attempt, Round: task.Round, CompleteBy: x.effect.At, Left: left,
		Input: task.InputOf(at), Results: task.AppendResults(nil, plan, x.e.plan.rides[at]), Trace: task.Trace,
	}}, func(p core.Probe) {
		s.postProbe(ProbedMail{Partition: partition, Epoch: epoch, Number: number, Seq: seq, Probe: p})
	})
}

// applyProbed applies agents' answers about silent dos.
func (s *Shard) applyProbed(context.Context) (bool, error) {
	c := s.cycle
	for ; c.pos.probed < len(c.mail.Probed); c.pos.probed++ {
		m := &c.mail.Probed[c.pos.probed]
		p, e := s.inFlight(m.Partition, m.Number)
		if c.waits(e) {
			return true, nil
		}
		if e == nil || p.epoch != m.Epoch {
			continue
		}
		s.cycle.use(p, e)
		ev := core.Event{Kind: core.EventProbed, At: m.At, Actor: s.cfg.Node, Seq: m.Seq, Code: m.Probe.Code(), Result: m.Probe.Result}
		if e.plan != nil {
			if i := e.task.AskedOf(e.plan.plan, m.Seq); i >= 0 {
				ev.Actor = e.plan.plan.Steps[i].Agent
			}
		}
		_ = s.event(p, e, &ev) // an answer to a question that no longer matters is stale
	}
	return false, nil
}

package scheduler

import (
	"bytes"
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// applyTasks turns submissions into tasks. A message counts as applied only after its last item, so that a
// crash in the middle reads it again.
func (s *Shard) applyTasks(ctx context.Context) (bool, error) {
	c := s.cycle
	for ; c.pos.task < len(c.mail.Tasks); c.pos.task, c.pos.sub = c.pos.task+1, 0 {
		m := &c.mail.Tasks[c.pos.task]
		p := s.partitions[m.Partition]
		if p == nil {
			continue // not ours any more: its owner reads it from the cursor
		}
		if m.Pos > p.nextCursor {
			for ; c.pos.sub < len(m.Submissions); c.pos.sub++ {
				if !s.cycle.roomy() {
					return true, nil
				}
				sub := &m.Submissions[c.pos.sub]
				if e := p.ids[sub.ID]; e != nil && s.cycle.makes(e) {
					return true, nil // only the commit says whether that task exists, to compare with
				}
				if err := s.submit(ctx, p, m, sub); err != nil {
					return false, err
				}
			}
			for i := range m.Refused {
				c.refused = append(c.refused, notice{p: p, status: m.Refused[i]})
			}
			p.nextCursor, p.nextStored = m.Pos, m.Stored
			p.reading.Read += int64(len(m.Submissions))
			p.reading.Waited = c.now.Sub(m.Stored)
		}
		p.ackLater(m.Ack)
	}
	return false, nil
}

// submit makes one submission a task, refuses it, or answers it as a duplicate.
func (s *Shard) submit(ctx context.Context, p *partition, m *TaskMail, sub *core.Submission) error {
	hash := core.HashInput(sub.Type, sub.Input)
	if e := p.ids[sub.ID]; e != nil {
		s.Stats.Duplicates++
		s.cycle.answerDuplicate(p, sub, hash, &core.Existing{
			ID: sub.ID, Type: e.task.Type, InputHash: e.task.InputHash, State: e.task.State, Reason: e.task.Why,
		})
		if bytes.Equal(e.task.InputHash, hash) && !s.cycle.makes(e) {
			s.cycle.tellCreated(e.task) // the owner that created it may have died before it told
		}
		return nil
	}
	ref, unread, err := s.plans.of(ctx, p, sub.Type, sub.PlanVersion, guesses(sub))
	if err != nil {
		return err
	}
	if s.refuses(p, sub, ref, unread) {
		return nil
	}
	e := &entry{
		task: taskOf(sub),
		plan: ref,
	}
	e.task.Partition, e.task.Number, e.task.InputHash, e.task.Origin = p.id, p.number(), hash, m.Pos
	ev := core.Event{Kind: 0, At: m.At, Actor: s.cfg.Node, Node: s.cfg.Node, Full: s.queues.othersFirst(e), Ask: s.counting.bind(s.cfg.Expressions, e), NoTime: s.hasNoTime(m, sub, ref)}
	s.gate.markBlocked(p, e, &ev)
	if p.takeover.MayHaveRun(e.task) {
		ev.Kind, ev.At, ev.Until = core.EventWentBack, max(m.At, p.takeover.WentBackAt), p.takeover.WentBackAt
	}
	switch {
	case unread != nil:
		core.BirthUnread(unread, e.task, &ev, &s.cycle.out)
	case ref != nil:
		core.Birth(ref.plan, e.task, &ev, &s.cycle.out)
	default:
		ev.Error = unknownPlan(sub)
		core.Birth(nil, e.task, &ev, &s.cycle.out)
	}
	if !e.task.State.Ended() {
		p.reading.Begun++
	}
	s.born(p, e)
	return nil
}

// taskOf returns the task that a submission asks for, still without number and plan.
func taskOf(sub *core.Submission) *core.Task {
	return &core.Task{
		ID: sub.ID, Type: sub.Type, PlanVersion: sub.PlanVersion, Input: sub.Input, ReplyTo: sub.ReplyTo, Trace: sub.Trace, Labels: sub.Labels,
		Deadline: sub.CompleteBy, StartAt: sub.StartAt, CreatedAt: sub.At,
	}
}

// submissionOf returns the submission that a task was made of.
func submissionOf(t *core.Task) core.Submission {
	return core.Submission{
		ID: t.ID, Type: t.Type, PlanVersion: t.PlanVersion, Input: t.Input, ReplyTo: t.ReplyTo, Trace: t.Trace, Labels: t.Labels,
		CompleteBy: t.Deadline, StartAt: t.StartAt, At: t.CreatedAt,
	}
}

// refuses refuses a submission that its plan does not take, or one without a plan that was promised nothing.
// It reports false if the submission becomes a task.
func (s *Shard) refuses(p *partition, sub *core.Submission, ref *planRef, unread *core.UnreadablePlan) bool {
	code, why := 0, ""
	switch {
	case (guesses(sub) || ref == nil && sub.PlanVersion == 0 && unread == nil) && s.plans.marked(sub.Type, sub.PlanVersion):
		code, why = 409, core.DeprecatedPlan(sub.Type, sub.PlanVersion) // what ingest accepted before the plan was deprecated goes on
	case unread != nil:
		return false
	case ref == nil && guesses(sub): // it was never stored: nothing was promised yet
		code, why = 404, unknownPlan(sub)
	case ref == nil:
		return false
	default:
		code, why = s.plans.unfit(ref, sub.ID, sub.Input)
	}
	if why == "" {
		return false
	}
	s.cycle.refusal(p, sub, code, why)
	return true
}

// guesses reports whether a submission names a version that ingest has not looked up: it came through the
// stream directly.
func guesses(sub *core.Submission) bool { return sub.Unchecked && sub.PlanVersion != 0 }

func unknownPlan(sub *core.Submission) string {
	if sub.PlanVersion == 0 {
		return fmt.Sprintf("no plan is stored for type %q", sub.Type)
	}
	return fmt.Sprintf("no plan is stored for type %q in version %d", sub.Type, sub.PlanVersion)
}

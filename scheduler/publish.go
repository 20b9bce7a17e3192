package scheduler

import (
	"context"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// publish lets the effects of the committed round leave.
func (s *Shard) publish(ctx context.Context) error {
	err := s.prepare(ctx)
	if err == nil {
		depart([]*Shard{s})
	}
	return err
}

// prepare lets leave what of the committed round leaves one by one, and gathers endings
// and commands. Refusals must be stored before their messages are acknowledged; endings
// are confirmed later and guarded by the told mark; commands are guarded by their
// complete-by.
func (s *Shard) prepare(ctx context.Context) error {
	t := &s.turn
	if err := s.refuse(ctx); err != nil {
		return err
	}
	s.prove(ctx)
	t.leave = s.cfg.Now()
	for i := 0; i < len(t.effects); i++ { // one that is held back adds to them
		x := &t.effects[i]
		s.Stats.Looks++
		if x.p.lost {
			continue
		}
		if i < x.e.revoked {
			if x.end != 0 {
				x.p.told.add(x.end)
			}
			continue
		}
		if x.effect.Kind == core.EffectEnded {
			if x.end != x.e.task.EndNumber {
				x.p.told.add(x.end) // it was taken up again in the same round: there is nothing to tell
				continue
			}
			x.p.endings++
			t.endings = append(t.endings, ending(x))
		}
		s.effect(x)
	}
	return nil
}

// depart lets go what the rounds of shards on one bus have gathered: endings to the
// event stream and commands to the agents.
func depart(shards []*Shard) {
	if len(shards) == 0 {
		return
	}
	tellAll(shards)
	first := shards[0]
	cmds := &first.turn.cmds
	for _, s := range shards[1:] {
		*cmds = append(*cmds, s.turn.cmds...)
	}
	if len(*cmds) > 0 {
		first.bus.Send(*cmds)
	}
}

// refuse stores the refusals of the round and tells the submitters.
func (s *Shard) refuse(ctx context.Context) error {
	t := &s.turn
	var refused []core.Status
	for i := range t.refused {
		if !t.refused[i].p.lost {
			refused = append(refused, t.refused[i].status)
		}
	}
	if len(refused) > 0 {
		if err := s.bus.Refuse(ctx, refused); err != nil {
			return fmt.Errorf("refusals: %w", err)
		}
	}
	for i := range t.notices {
		if n := &t.notices[i]; !n.p.lost {
			s.bus.Notify(n.subject, n.status)
		}
	}
	return nil
}

// effect does one effect; commands are gathered.
func (s *Shard) effect(x *pending) {
	task := x.e.task
	switch x.effect.Kind {
	case core.EffectDo, core.EffectUndo:
		if x.effect.Again && s.turn.leave > x.p.ownedAt.Add(core.OwnedFor) {
			s.holdBack(x)
			return
		}
		if x.effect.Step < len(task.Steps) && task.Steps[x.effect.Step].Out == x.effect.Seq {
			s.command(x)
		}
	case core.EffectWake:
		s.wakes.push(wake{at: x.effect.At, partition: x.p.id, number: task.Number})
	case core.EffectAlert:
		s.alert(x)
	case core.EffectReceived:
		s.status(task, core.StatusReceived, "", task.UpdatedAt)
	case core.EffectEnded:
		_, why := lastWords(task, x.e.plan)
		status := core.Status{ID: task.ID, Type: task.Type, Status: string(task.State), Error: why, At: task.EndedAt}
		s.bus.Live(status)
		if task.ReplyTo != "" {
			s.bus.Notify(task.ReplyTo, status)
		}
	}
}

func (s *Shard) status(task *core.Task, status, why string, at core.Instant) {
	if task.ReplyTo != "" {
		s.bus.Notify(task.ReplyTo, core.Status{ID: task.ID, Type: task.Type, Status: status, Error: why, At: at})
	}
}

// command puts together what an agent needs. One whose time is over by now does not leave:
// its agent would drop it.
func (s *Shard) command(x *pending) {
	t := &s.turn
	left := x.effect.At.Sub(t.leave)
	if left <= 0 {
		return
	}
	task, plan := x.e.task, x.e.plan.plan
	step := &plan.Steps[x.effect.Step]
	from := len(t.results)
	for i := range x.effect.Step {
		if task.Steps[i].Status == core.StepDone {
			t.results = append(t.results, core.StepResult{Step: plan.Steps[i].Name, Result: task.Steps[i].Result})
		}
	}
	c := core.Command{
		Undo: x.effect.Kind == core.EffectUndo, Agent: step.Agent,
		Partition: task.Partition, Number: task.Number, Seq: x.effect.Seq, Commit: x.e.commitOf(x.effect.Seq),
		Task: task.ID, Type: task.Type, Step: step.Name, Attempt: x.effect.Attempt, Round: task.Round,
		CompleteBy: x.effect.At, Left: left,
		Input: task.Input, Results: t.results[from:len(t.results):len(t.results)], Trace: task.Trace,
	}
	if c.Undo {
		c.Result = task.Steps[x.effect.Step].Result
	}
	t.cmds = append(t.cmds, c)
}

// tellAll hands the endings of a round to the event stream, those of all
// partitions together: every message there is synced to disk, so few and full
// ones are cheap. The confirmation comes back as one mail for each partition.
func tellAll(shards []*Shard) {
	endings, partitions := 0, 0
	for _, s := range shards {
		endings += len(s.turn.endings)
		partitions += len(s.partitions)
	}
	if endings == 0 {
		return
	}
	all := make([]core.Ending, 0, endings) // the mails keep them
	mails := make([]confirmation, 0, partitions)
	for _, s := range shards {
		for _, p := range s.inOrder() {
			if p.endings == 0 {
				continue
			}
			p.endings = 0
			from := len(all)
			for i := range s.turn.endings {
				if s.turn.endings[i].Partition == p.id {
					all = append(all, s.turn.endings[i])
				}
			}
			mails = append(mails, confirmation{ToldMail{Partition: p.id, Epoch: p.epoch, Endings: all[from:len(all):len(all)]}, s.posted})
		}
	}
	hand(shards[0].bus, all, mails)
}

// tell hands endings of one partition to the event stream.
func (s *Shard) tell(p *partition, endings []core.Ending) {
	hand(s.bus, endings, []confirmation{{ToldMail{Partition: p.id, Epoch: p.epoch, Endings: endings}, s.posted}})
}

// confirmation is the mail about endings of a partition, and where it goes.
type confirmation struct {
	mail   ToldMail
	posted func(ToldMail)
}

// hand hands endings over; the mails say which of them are whose.
func hand(bus Bus, endings []core.Ending, mails []confirmation) {
	bus.Tell(endings, func(err error) {
		for i := range mails {
			mails[i].mail.Err = err
			mails[i].posted(mails[i].mail)
		}
	})
}

func ending(x *pending) core.Ending {
	t := x.e.task
	step, why := lastWords(t, x.e.plan)
	return core.Ending{
		Partition: t.Partition, EndNumber: t.EndNumber, ID: t.ID, Type: t.Type, State: t.State, Seq: t.Seq,
		Step: step, Error: why, CreatedAt: t.CreatedAt, At: t.EndedAt,
	}
}

// lastWords says which step failed a task that did not come to be processed,
// and why, from what memory still holds.
func lastWords(t *core.Task, ref *planRef) (step, why string) {
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

// wentBackNote tells those who have heard of another end of the task.
const wentBackNote = " (the database went back: what was said of this task before may not hold)"

// inOrder returns the partitions by number, so that a run can be repeated.
func (s *Shard) inOrder() []*partition {
	if len(s.ordered) != len(s.partitions) || s.reorder {
		s.ordered, s.reorder = s.ordered[:0], false
		for _, p := range s.partitions {
			s.ordered = append(s.ordered, p)
		}
		slices.SortFunc(s.ordered, func(a, b *partition) int { return a.id - b.id })
	}
	return s.ordered
}

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Controls: requests of operators, users and the supervisor about tasks.

// applyControls applies the deferred requests that are ready, then the control messages of the mail.
func (s *Shard) applyControls(ctx context.Context) (bool, error) {
	c := s.cycle
	if full, err := s.applyDeferred(ctx); full || err != nil {
		return full, err
	}
	for ; c.pos.control < len(c.mail.Controls); c.pos.control, c.pos.number = c.pos.control+1, 0 {
		if !s.cycle.roomy() {
			return true, nil
		}
		m := &c.mail.Controls[c.pos.control]
		p := s.partitions[m.Partition]
		if p == nil {
			continue
		}
		if m.Pos > p.nextControl {
			full, err := s.applyControl(ctx, p, m)
			if full || err != nil {
				return full, err
			}
			p.nextControl, p.nextControlStored = m.Pos, m.Stored
			p.changes() // the supervisor waits to see its question answered
		}
		p.ackLater(m.Ack)
	}
	return false, nil
}

// applyDeferred applies the deferred requests that are ready.
func (s *Shard) applyDeferred(ctx context.Context) (bool, error) {
	for _, p := range s.inOrder() {
		for i := p.readyDeferred(s.cycle.now, s.plans); i >= 0; i = p.readyDeferred(s.cycle.now, s.plans) {
			if !s.cycle.roomy() {
				return true, nil
			}
			m := p.deferred[i]
			full, err := p.asRead(func() (bool, error) { return s.applyControl(ctx, p, &m.ControlMail) }) // it must not be deferred again
			if full || err != nil {
				return full, err
			}
			p.undefer(i)
			p.changes()
		}
	}
	return false, nil
}

// applyControl applies one request. full: the batch is, and the request has to be applied again in the next
// round.
func (s *Shard) applyControl(ctx context.Context, p *partition, m *ControlMail) (full bool, err error) {
	c := &m.Control
	ev := c.Event(m.At)
	ev.Looked = m.seenAt()
	switch {
	case c.Kind == 0:
		return false, nil
	case c.Found != "" && p.seenBefore(m.assertedAt()):
		s.log.Warn("a request about tasks changed nothing: the database went back since its sender looked at the service, where more may have happened: look again",
			"kind", c.Kind, "task", c.ID, "found", c.Found, "actor", c.Actor)
		return false, nil
	case c.Kind == core.EventOverdue:
		return s.applyOverdue(ctx, p, c, &ev)
	case len(c.Numbers) > 0:
		return s.applyMany(ctx, p, m, &ev)
	}
	e, stored, err := s.find(ctx, p, c.ID)
	if err != nil {
		return false, err
	}
	if unread := s.cycle.unread; unread != nil && (e == nil || c.Kind != core.EventCancel && c.Kind != core.EventUndo) && p.deferForPlan(m, unread, s.cycle.now) {
		return false, nil
	}
	if e == nil && stored {
		return false, nil // the log says why it cannot be loaded
	}
	if e == nil {
		if c.Kind == core.EventCancel && c.Type != "" && c.IfSeq == 0 && core.RootID(c.ID) == c.ID { // no one submits a child
			if p.unread() && p.deferUntilRead(m) {
				return false, nil
			}
			s.cancelUnknown(p, c, &ev)
			return false, nil
		}
		if c.Kind == core.EventSignal {
			_ = s.Stats.Kinds.countSignal(core.ErrNotFound)
		}
		s.log.Warn("a request names a task that does not exist", "kind", c.Kind, "task", c.ID, "actor", c.Actor)
		return false, nil
	}
	if s.cycle.makes(e) {
		return true, nil // only the commit says whether it exists
	}
	why, err := s.ask(ctx, p, e, &ev)
	if why != nil {
		s.log.Info("a request about a task changed nothing", "task", c.ID, "actor", c.Actor, "why", why)
	}
	return false, err
}

// ask applies a request to one task. why says that it changed nothing; err stops the round.
func (s *Shard) ask(ctx context.Context, p *partition, e *entry, ev *core.Event) (why, err error) {
	if e.plan == nil && (ev.Kind == core.EventResubmit || ev.Kind == core.EventEdit) { // its plan was unknown when it was created
		ref, unread, err := s.plans.of(ctx, p, e.task.Type, 0, false)
		if err != nil {
			return nil, err
		}
		if unread != nil {
			return fmt.Errorf("%w: task %s: %w", core.ErrNotAllowed, e.task.ID, unread), nil
		}
		e.replan(ref)
	}
	if gone, err := s.journalGone(ctx, p, e); gone || err != nil {
		return fmt.Errorf("%w: task %s: its journal is forgotten", core.ErrNotAllowed, e.task.ID), err
	}
	if e.parent != nil && e.task.State.Ended() {
		asked := requestOf(e, ev)
		if slices.Contains(s.unstorable, asked) {
			return fmt.Errorf("%w: task %s: the database refuses the row of it", core.ErrNotAllowed, e.task.ID), nil
		}
		if e.round.write == 0 { // else an earlier request of this round is the one whose row may be refused
			e.round.asked = &asked
		}
	}
	if ev.Kind == core.EventMigrate {
		if why, err = s.plans.versionFor(ctx, p, e, ev); why != nil || err != nil {
			return why, err
		}
	}
	if why = e.task.Fits(e.plan.known(), ev, s.cfg.CheckInput, s.cfg.CheckSignal); why != nil {
		why = fmt.Errorf("%w: task %s: %w", core.ErrNotAllowed, e.task.ID, why)
	} else {
		why = s.event(p, e, ev)
	}
	if ev.Kind == core.EventSignal {
		why = s.Stats.Kinds.countSignal(why)
	}
	return why, nil
}

// requestOf identifies a request, to recognise it when it is read again.
func requestOf(e *entry, ev *core.Event) request {
	what := core.HashInput(ev.Step+string(ev.As)+string(ev.Found)+ev.Reason, slices.Concat(ev.Input, []byte{0}, ev.Result))
	return request{e.task.ID, e.task.Seq, ev.Kind, ev.Actor, string(what)}
}

// applyMany applies a request to each task that it names by number, as long as the task is still at the row
// named with it. A task that refuses does not stop the others. After a crash the whole message is applied
// again; tasks that it has changed are at other rows by then.
func (s *Shard) applyMany(ctx context.Context, p *partition, m *ControlMail, ev *core.Event) (full bool, err error) {
	c := &m.Control
	var some refusals
	defer func() { some.log(s.log, c) }()
	return s.eachNumber(ctx, p, c.Numbers, func(i int, e *entry) error {
		one := *ev
		if c.Kind != core.EventMigrate {
			one.IfSeq = c.Seqs[i]
		}
		if p.another(m, c.Numbers[i]) {
			e = nil
		}
		if e == nil {
			some.unknown++
			return nil
		}
		why, err := s.ask(ctx, p, e, &one)
		if why != nil {
			some.add(why)
		}
		return err
	})
}

// eachNumber calls f with each task that a message names by number, nil if there is none, and loads them in
// parts. When the batch is full the next round continues where this one stopped. Beginning anew might never
// end: a task that the supervisor asks about may well be overdue still.
func (s *Shard) eachNumber(ctx context.Context, p *partition, numbers []int64, f func(i int, e *entry) error) (full bool, err error) {
	at := &s.cycle.pos.number
	for *at < len(numbers) {
		room := s.cycle.writesLeft()
		if !s.cycle.roomy() {
			return true, nil
		}
		part := numbers[*at:min(len(numbers), *at+min(room, max(1, s.cfg.Memory.fits(room))))]
		if _, err := s.loadNumbers(ctx, p, part); err != nil {
			return false, err
		}
		for _, number := range part {
			e := p.tasks[number]
			if e != nil && s.cycle.waits(e) {
				return true, nil
			}
			if err := f(*at, e); err != nil {
				return false, err
			}
			*at++
		}
	}
	return false, nil
}

// another reports whether a number may by now belong to another task than the request means: it was given out
// in time that the database has lost, and given out again since.
func (p *partition) another(m *ControlMail, number int64) bool {
	return number >= p.takeover.WentBackNumber && p.seenBefore(m.Stored)
}

// seenBefore reports whether something asserted at an instant may rest on what was seen before the database
// went back: it was asserted before that, or within a minute after.
func (p *partition) seenBefore(at core.Instant) bool {
	back := p.takeover.WentBackAt
	return back != 0 && at <= back.Add(time.Minute)
}

// refusals counts the tasks that one request did not change.
type refusals struct {
	unknown, refused int
	first            error
}

func (r *refusals) add(why error) {
	if r.refused++; r.first == nil {
		r.first = why
	}
}

// log writes one line for all of them.
func (r *refusals) log(log *slog.Logger, c *core.Control) {
	if r.unknown+r.refused > 0 {
		log.Info("a request about many tasks did not change all of them", "kind", c.Kind, "tasks", len(c.Numbers), "unknown", r.unknown, "refused", r.refused, "actor", c.Actor, "why", r.first)
	}
}

// applyOverdue asks the core about each task that the supervisor names. The step in the message is only what
// the supervisor saw; the core looks at the whole task, by its own clock.
func (s *Shard) applyOverdue(ctx context.Context, p *partition, c *core.Control, ev *core.Event) (full bool, err error) {
	return s.eachNumber(ctx, p, c.Numbers, func(i int, e *entry) error {
		if e == nil {
			return nil
		}
		ask := *ev
		if e.plan == nil && e.task.PlanVersion != 0 { // no owner can continue it: an operator has to
			ask.Kind, ask.Error = core.EventPoison, "its plan is not stored any more"
		}
		if err := s.event(p, e, &ask); err != nil && !errors.Is(err, core.ErrStale) {
			s.log.Warn("a question about an overdue task changed nothing", "task", e.task.ID, "step", stepAsked(c, i), "why", err)
		}
		return nil
	})
}

// stepAsked returns the step of the i-th task that the supervisor saw overdue; empty if it named none.
func stepAsked(c *core.Control, i int) string {
	if i < len(c.Steps) {
		return c.Steps[i]
	}
	return ""
}

// cancelUnknown creates a cancelled task under an id that was not submitted yet, so that a submission which
// comes later is refused.
func (s *Shard) cancelUnknown(p *partition, c *core.Control, ev *core.Event) {
	t := &core.Task{Partition: p.id, Number: p.number(), ID: c.ID, Type: c.Type}
	e := &entry{task: t}
	core.BirthCancelled(t, ev, &s.cycle.out)
	s.born(p, e)
}

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// fill completes the round's batch, and reports whether there is anything to commit. A partition takes part
// if something of it changed, or, when the cycle flushes, if its cursors moved.
func (s *Shard) fill() bool {
	c := s.cycle
	for _, p := range s.inOrder() {
		if p.dirty || (c.flush && p.write() != p.saved) {
			c.batch.Partitions = append(c.batch.Partitions, p.write())
			c.owned = append(c.owned, p)
		}
	}
	if len(c.batch.Partitions) == 0 {
		return false
	}
	c.batch.ID, c.batch.Node = s.cfg.IDs.Next(), s.cfg.Node
	return true
}

// commitBatch commits a batch and notes the new last commit of each partition in it. The store commits a
// partition only if its last commit is still the one before.
func (s *Shard) commitBatch(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	for i := range b.Partitions {
		if p := s.partitions[b.Partitions[i].Partition]; p != nil {
			b.Partitions[i].After = p.last
		}
	}
	res, err := s.store.Commit(ctx, b)
	if err != nil {
		return res, err
	}
	for i := range b.Partitions {
		id := b.Partitions[i].Partition
		if p := s.partitions[id]; p != nil && !slices.Contains(res.Fenced, id) {
			p.last = b.ID
		}
	}
	s.evidence.nextRound.wake(s.cycle.now.Add(evidenceEvery))
	return res, nil
}

// commit writes the round's batch, in parts if the database refuses it as a whole.
func (s *Shard) commit(ctx context.Context) error {
	c := s.cycle
	res, err := s.commitBatch(ctx, &c.batch)
	halved := refusedInPart(err, len(c.batch.Writes))
	if halved {
		res, err = s.halve(ctx, childrenFirst(c.batch.Writes))
	}
	if err != nil {
		return fmt.Errorf("commit %d of %d tasks: %w", c.batch.ID, len(c.batch.Writes), err)
	}
	s.committed(&res, halved)
	return nil
}

// committed applies the result of a commit: it drops fenced partitions and duplicates, and marks the rest as
// stored.
func (s *Shard) committed(res *core.CommitResult, halved bool) {
	c := s.cycle
	s.Stats.Commits++
	s.Stats.Writes += int64(len(c.batch.Writes))
	s.Stats.Records += int64(len(c.records))
	for _, id := range res.Fenced {
		if p := s.partitions[id]; p != nil && !p.lost {
			s.lose(p)
		}
	}
	for i := range res.Duplicates {
		s.duplicate(&res.Duplicates[i])
	}
	if !halved { // else some partition's row may not have been in the last part; the next flush writes it
		for i, p := range c.owned {
			p.saved = c.batch.Partitions[i]
			p.saved.After = 0
		}
		s.issued(c.batch.Writes, c.batch.ID)
	}
	s.Stats.Kinds.countRows(c.batch.Writes, s.owned)
	s.cfg.Observers.observe(c.batch.Writes, s.owned)
}

// refusedInPart reports whether a refused batch of so many tasks can be committed in smaller parts: one of
// its rows is refused, or it is larger than the database takes at once.
func refusedInPart(err error, tasks int) bool {
	return errors.Is(err, core.ErrRowRefused) && tasks > 0 || errors.Is(err, core.ErrBatchRefused) && tasks > 1
}

// childrenFirst orders writes so that a child's end comes before what it means for its parent, the deepest
// first. A batch that is committed in parts is committed in that order.
func childrenFirst(writes []core.TaskWrite) []core.TaskWrite {
	sorted := slices.Clone(writes)
	depth := func(w *core.TaskWrite) int {
		if w.Task.Parent == 0 || w.Birth || !w.Task.State.Ended() { // no parent's row depends on a birth: see relay
			return 0
		}
		return len(w.Task.ID) // longer than its parent's
	}
	slices.SortStableFunc(sorted, func(a, b core.TaskWrite) int { return depth(&b) - depth(&a) })
	return sorted
}

// fenceDependents drops the partition, as if it had been fenced, when a refused row was a child's end: its
// parent's row in this batch depends on it and is not committed yet, and what the owner has counted in memory
// is wrong.
func fenceDependents(res core.CommitResult, p *partition, ended bool) core.CommitResult {
	if ended && !slices.Contains(res.Fenced, p.id) {
		res.Fenced = append(res.Fenced, p.id)
	}
	return res
}

// halve commits a refused batch in halves, down to the one row that the database refuses. If only the size
// was refused, no task is to blame and none is poisoned. The batch carries the cursors of the round before,
// so a crash in the middle reads the messages again.
func (s *Shard) halve(ctx context.Context, writes []core.TaskWrite) (core.CommitResult, error) {
	if len(writes) == 1 {
		return s.poison(ctx, &writes[0])
	}
	var res core.CommitResult
	for _, half := range [][]core.TaskWrite{writes[:len(writes)/2], writes[len(writes)/2:]} {
		if half = s.standing(half, res.Fenced); len(half) == 0 {
			continue
		}
		b := core.Batch{ID: s.cfg.IDs.Next(), Node: s.cfg.Node, Partitions: s.cycle.batch.Partitions, Writes: half}
		r, err := s.commitBatch(ctx, &b)
		switch {
		case refusedInPart(err, len(half)):
			r, err = s.halve(ctx, half)
		case err == nil:
			s.issued(half, b.ID)
		}
		if err != nil {
			return res, err
		}
		res.Fenced = append(res.Fenced, r.Fenced...)
		res.Duplicates = append(res.Duplicates, r.Duplicates...)
	}
	return res, nil
}

// poison handles the one task whose row the database refuses: it is loaded anew and put in error, with its
// input kept.
func (s *Shard) poison(ctx context.Context, w *core.TaskWrite) (core.CommitResult, error) {
	p, e := s.inFlight(w.Task.Partition, w.Task.Number)
	if e == nil {
		return core.CommitResult{}, nil
	}
	s.Stats.Poisoned++
	s.log.Error("the database refuses the row of a task; the task is put in error", "task", w.Task.ID, "partition", p.id, "number", w.Task.Number)
	s.takeBack(p, e)
	ended := e.parent != nil && e.task.State.Ended()
	ev := core.Event{Kind: core.EventPoison, At: s.cycle.now, Actor: s.cfg.Node, Error: "the database refuses the task's row"}
	if w.Birth {
		return s.poisonBirth(ctx, p, e, &ev) // no parent's row depends on it yet: see relay
	}
	// A database may look at rows before it compares the partition's: the row may be refused of an owner that is overtaken.
	saved, err := s.store.LoadNumbers(ctx, p.asOf(), []int64{w.Task.Number})
	if err != nil {
		return s.cycle.fenceStopped(fmt.Errorf("task %s: %w", w.Task.ID, err))
	}
	if e.plan == nil {
		s.forsake(p, e)
		return core.CommitResult{}, nil
	}
	if len(saved) == 0 {
		return core.CommitResult{Fenced: []int{p.id}}, nil
	}
	t, err := core.Replay(e.plan.plan, &saved[0])
	if err != nil {
		return s.cycle.fenceStopped(core.StoppingPartition(p.id, err))
	}
	e.becomes(t)
	from := t.WaitsFor
	if err := core.Apply(e.plan.plan, t, &ev, &s.cycle.out); err != nil { // it has ended, and a request tried to reopen it
		s.unstorable.add(e, t.Seq)
		s.forsake(p, e)
		return fenceDependents(core.CommitResult{}, p, ended), nil
	}
	res, err := s.commitAlone(ctx, p, e, false)
	if errors.Is(err, core.ErrRowRefused) {
		s.log.Error("ALERT: the database refuses even the error row of a task; it stays as it is stored", "event", "row-refused", "task", t.ID, "partition", p.id, "number", t.Number)
		s.forsake(p, e)
		return fenceDependents(core.CommitResult{}, p, ended), nil
	}
	s.cycle.unpark(p, e, from)
	return fenceDependents(res, p, ended), err
}

// poisonBirth stores a new task, whose row the database refuses, in error and without its optional texts. If
// even that is refused the submission becomes a dead letter. The submitter is told either way.
func (s *Shard) poisonBirth(ctx context.Context, p *partition, e *entry, ev *core.Event) (core.CommitResult, error) {
	was := e.task
	p.occupy(e, core.StepSet{})
	e.replan(nil)
	e.becomes(&core.Task{
		Partition: p.id, Number: was.Number, ID: was.ID, Type: was.Type, Input: was.Input, InputHash: was.InputHash,
		Origin: was.Origin, CreatedAt: was.CreatedAt, Deadline: was.Deadline, StartAt: was.StartAt,
		Parent: was.Parent, ParentStep: was.ParentStep, ChildIndex: was.ChildIndex,
	})
	core.Birth(nil, e.task, ev, &s.cycle.out)
	res, err := s.commitAlone(ctx, p, e, true)
	if !errors.Is(err, core.ErrRowRefused) {
		if err == nil && len(res.Duplicates) == 0 { // tell the submitter now: the bare row has no reply subject
			s.cycle.notify(p, was.ReplyTo, core.Status{ID: was.ID, Type: was.Type, Status: string(core.StateError), Error: ev.Error, At: ev.At})
		}
		return res, err
	}
	s.families.stillborn(e, ev.Error)
	s.forsake(p, e)
	sub := submissionOf(was)
	if err := s.bus.Dead(ctx, p.id, sub, ev.Error); err != nil {
		return core.CommitResult{}, fmt.Errorf("dead letter of task %s: %w", was.ID, err)
	}
	s.cycle.refusal(p, &sub, 422, ev.Error)
	return core.CommitResult{}, nil
}

// commitAlone commits the outcome in cycle.out as a batch of its own.
func (s *Shard) commitAlone(ctx context.Context, p *partition, e *entry, created bool) (core.CommitResult, error) {
	e.round.write = 0
	relaying := s.families.relaying
	s.families.relaying = true // the batch is being committed, so the parent is told in the next round
	s.keep(p, e, created)
	s.families.relaying = relaying
	w := s.cycle.batch.Writes[e.round.write-1]
	for i := range s.cycle.batch.Partitions {
		if s.cycle.batch.Partitions[i].Partition == p.id { // the outcome may have used an end number
			s.cycle.batch.Partitions[i] = p.write()
		}
	}
	b := core.Batch{ID: s.cfg.IDs.Next(), Node: s.cfg.Node, Partitions: []core.PartitionWrite{p.write()}, Writes: []core.TaskWrite{w}}
	res, err := s.commitBatch(ctx, &b)
	if err == nil {
		s.issued(b.Writes, b.ID)
	}
	return res, err
}

// acknowledge moves the cursors and acknowledges the round's messages: all of their tasks are committed and
// their statuses out.
func (s *Shard) acknowledge() {
	for _, p := range s.inOrder() {
		if p.lost {
			continue
		}
		p.advance(p.controlDone())
	}
}

// endRound settles the tasks used in the round, drops those that nothing pins, and clears the round.
func (s *Shard) endRound() {
	s.gate.agents.countCalls(s.cycle.now, s.cycle.calls)
	for _, x := range s.cycle.touched {
		if x.e.settle() {
			s.gate.nextRound.wake(s.cycle.now)
		}
		x.e.round = inRound{}
		x.p.leave(x.e)
	}
	for _, p := range s.partitions {
		p.settled()
		p.dropIdle()
	}
	s.cycle.rounds++
	s.cycle.endRound()
}

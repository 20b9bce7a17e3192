package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// RunCycle is one commit cycle: it handles everything in the mail and every wake that is due, in as many commits as the
// batch limit asks for, and returns when all effects are out, with the partitions that are not this shard's any more.
// flush: commit also what only moves cursors.
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

// round is one commit and what follows from it; more: there is mail left for another one.
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
	room := s.queues.queueParked(&s.cycle)
	s.endRound()
	return more || room || len(s.families.told) > 0, nil // a refused row may have ended a child
}

// cycle is the scratch memory of one commit cycle, kept between cycles.
type cycle struct {
	now           core.Instant
	leave         core.Instant // when what is committed leaves
	mail          *Mail
	flush         bool
	most          int   // writes of a batch
	rounds        int64 // number of the batch that is being made
	noRoom        bool  // parked tasks wait for room in the window
	answers, late int   // of agents, and of them those that took longer than usual
	bytes         int   // of the batch, by TaskWrite.Size
	pos           struct{ published, control, number, reply, unserved, probed, task, sub int }

	lost    []int                // partitions that are not this shard's any more
	stopped []int                // those of them that an error has stopped
	failed  error                // what has stopped single partitions
	unread  *core.UnreadablePlan // of the task that was found last
	out     core.Outcome
	batch   core.Batch
	records []core.Record // arena of the batch's records
	owned   []*partition  // partitions of the batch, as batch.Partitions
	touched []touch       // tasks used in this round
	effects []pending
	calls   []call
	parked  []parked      // tasks that rows of the round park
	takenUp []parked      // tasks that rows of the round take up, with where they were parked
	first   []*fan        // of steps that began in this round
	resumed *core.Saved   // the task that a takeover resumes
	endings []core.Ending // to be stored in the event stream
	created []core.Ending // creations that are told there, in the form of endings
	refused []notice      // to be stored in the event stream
	notices []notice      // to be sent to submitters
	cmds    []core.Command
	results []core.StepResult // arena of the commands' results
}

// touch is a task used in the round.
type touch struct {
	p *partition
	e *entry
}

// pending is an effect that waits for its commit.
type pending struct {
	p      *partition
	e      *entry
	effect core.Effect
	end    int64 // of an ending: the number it was given

	refused int // as inRound.refused was
}

// notice is a status about a submission that waits for the commit: what it says may rest on a task that is not
// committed yet.
type notice struct {
	p       *partition
	subject string // of the submitter
	status  core.Status
}

func (s *Shard) begin(now core.Instant, mail *Mail, flush bool) {
	c := &s.cycle
	if back := now - c.now; back < 0 {
		s.setBack(back)
	}
	s.gate.now, s.plans.now = now, now
	c.now, c.mail, c.flush, c.lost, c.stopped, c.failed, c.answers, c.late = now, mail, flush, nil, nil, nil, 0, 0
	c.pos.published, c.pos.control, c.pos.number, c.pos.reply, c.pos.unserved, c.pos.probed, c.pos.task, c.pos.sub = 0, 0, 0, 0, 0, 0, 0, 0
}

// setBack moves what the shard has noted by a clock that is set back by now. What is stored, or comes from others, stays.
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

// left is how many writes the batch can take.
func (c *cycle) left() int { return c.most - len(c.batch.Writes) }

// roomy reports whether the batch can take another write.
func (c *cycle) roomy() bool { return c.left() > len(c.first) && c.bytes < core.BatchBytesMax }

// use notes a task as used in this round, so that it is let go at its end if nothing holds it.
func (c *cycle) use(p *partition, e *entry) { c.touched = append(c.touched, touch{p, e}) }

// write adds the records of the outcome to the task's one write of the batch.
func (c *cycle) write(e *entry, created bool) {
	from := len(c.records)
	if e.round.write == 0 {
		c.batch.Writes = append(c.batch.Writes, core.TaskWrite{Task: e.task, Birth: created})
		e.round.write = len(c.batch.Writes)
	} else {
		before := &c.batch.Writes[e.round.write-1]
		c.bytes -= before.Size()
		c.records = append(c.records, before.Records...)
	}
	c.records = append(c.records, c.out.Records...)
	w := &c.batch.Writes[e.round.write-1]
	w.Records = c.records[from:len(c.records):len(c.records)]
	w.Row = w.Row || (c.out.Row && !w.Birth)
	c.bytes += w.Size()
}

// endRound forgets the round and keeps its memory.
func (c *cycle) endRound() {
	c.bytes = 0
	clear(c.batch.Writes)
	clear(c.records)
	clear(c.effects)
	clear(c.calls)
	clear(c.parked)
	clear(c.takenUp)
	clear(c.endings)
	clear(c.created)
	clear(c.cmds)
	clear(c.touched)
	clear(c.results)
	clear(c.refused)
	clear(c.notices)
	clear(c.owned) // a partition that was let go is not kept
	c.batch.Writes, c.batch.Partitions = c.batch.Writes[:0], c.batch.Partitions[:0]
	c.records, c.owned, c.touched = c.records[:0], c.owned[:0], c.touched[:0]
	c.endings, c.created = c.endings[:0], c.created[:0]
	c.parked, c.takenUp = c.parked[:0], c.takenUp[:0]
	c.effects, c.calls, c.cmds, c.results = c.effects[:0], c.calls[:0], c.cmds[:0], c.results[:0]
	c.refused, c.notices = c.refused[:0], c.notices[:0]
}

package scheduler

import (
	"bytes"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

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

	lost     []int                // partitions that are not this shard's any more
	stopped  []int                // those of them that an error has stopped
	failed   error                // what has stopped single partitions
	unread   *core.UnreadablePlan // of the task that was found last
	out      core.Outcome
	batch    core.Batch
	records  []core.Record // arena of the batch's records
	owned    []*partition  // partitions of the batch, as batch.Partitions
	touched  []touch       // tasks used in this round
	effects  []pending
	calls    calls
	parked   []parked      // tasks that rows of the round park
	unparked []parked      // tasks that rows of the round take up, with where they were parked
	newFans  []*fan        // of steps that began in this round
	resumed  *core.Saved   // the task that a takeover resumes
	endings  []core.Ending // to be stored in the event stream
	created  []core.Ending // creations that are told there, in the form of endings
	refused  []notice      // to be stored in the event stream
	notices  []notice      // to be sent to submitters
	cmds     []core.Command
	results  []core.StepResult // arena of the commands' results
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

// parked is a task that a row of the round parks in a slot, or takes up there.
type parked struct {
	p    *partition
	slot *agentSlot
	e    *entry
}

// writesLeft is how many writes the batch can take.
func (c *cycle) writesLeft() int { return c.most - len(c.batch.Writes) }

// roomy reports whether the batch can take another write.
func (c *cycle) roomy() bool { return c.writesLeft() > len(c.newFans) && c.bytes < core.BatchBytesMax }

// makes reports whether a task is one that the round makes: whether it can be stored the commit says.
func (c *cycle) makes(e *entry) bool {
	return e.round.write != 0 && c.batch.Writes[e.round.write-1].Birth
}

// waits reports whether an event about a task has to wait for the next round.
func (c *cycle) waits(e *entry) bool { return !c.roomy() || e != nil && c.makes(e) }

// use notes a task as used in this round, so that it is let go at its end if nothing holds it.
func (c *cycle) use(p *partition, e *entry) { c.touched = append(c.touched, touch{p, e}) }

// unpark notes a task that was parked at an agent, and is not any more.
func (c *cycle) unpark(p *partition, e *entry, from string) {
	if slot := p.slots[from]; slot != nil && e.task.WaitsFor != from {
		c.unparked = append(c.unparked, parked{p, slot, e})
	}
}

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

// refusal reports, durably and to the submitter, that a submission never became a
// task. code is HTTP's.
func (c *cycle) refusal(p *partition, sub *core.Submission, code int, why string) {
	status := core.Status{ID: sub.ID, Type: sub.Type, Status: core.StatusRefused, Code: code, Error: why, At: c.now}
	c.refused = append(c.refused, notice{p: p, status: status})
	c.notify(p, sub.ReplyTo, status)
}

// notify sends a submitter, if it asked for it, a status after the commit.
func (c *cycle) notify(p *partition, subject string, status core.Status) {
	if subject != "" {
		c.notices = append(c.notices, notice{p: p, subject: subject, status: status})
	}
}

// answerDuplicate answers a submission whose id is taken: the same input is the same
// task, anything else is refused.
func (c *cycle) answerDuplicate(p *partition, sub *core.Submission, hash []byte, is *core.Existing) {
	if is.Type == sub.Type && bytes.Equal(is.InputHash, hash) {
		status := core.Status{ID: sub.ID, Type: sub.Type, Status: core.StatusReceived, At: c.now}
		if is.State.Ended() {
			status.Status, status.Error = string(is.State), is.Reason
		}
		c.notify(p, sub.ReplyTo, status)
		return
	}
	why := "id " + sub.ID + " is a task already, with another input"
	switch {
	case is.Type != sub.Type:
		why = fmt.Sprintf("id %s is a task of type %q already; ids are unique across types", sub.ID, is.Type)
	case len(is.InputHash) == 0:
		why = "id " + sub.ID + " was cancelled before it was submitted"
	}
	c.refusal(p, sub, 409, why)
}

// tellCreated tells the event stream of a task whose labels ask for it.
func (c *cycle) tellCreated(t *core.Task) {
	if len(t.Labels) > 0 && core.TellsCreated(t.Labels) {
		c.created = append(c.created, core.Ending{
			Partition: t.Partition, ID: t.ID, Type: t.Type, State: core.StatusCreated, Seq: 1, Labels: core.FormatLabels(t.Labels), CreatedAt: t.CreatedAt, At: c.now,
		})
	}
}

// noteStopped notes what has stopped a partition, unless that is a successor.
func (c *cycle) noteStopped(partition int, err error) {
	if errors.Is(err, core.ErrOvertaken) {
		return
	}
	c.stopped = append(c.stopped, partition)
	c.failed = errors.Join(c.failed, err)
}

// fenceStopped is Shard.stop for an error in the middle of a commit: the partition is let go as if it had been fenced.
func (c *cycle) fenceStopped(err error) (core.CommitResult, error) {
	f := core.FaultOf(err)
	if f.Stops != core.StopsPartition {
		return core.CommitResult{}, err
	}
	c.noteStopped(f.Partition, err)
	return core.CommitResult{Fenced: []int{f.Partition}}, nil
}

// endRound forgets the round and keeps its memory.
func (c *cycle) endRound() {
	c.bytes = 0
	clear(c.batch.Writes)
	clear(c.records)
	clear(c.effects)
	clear(c.calls)
	clear(c.parked)
	clear(c.unparked)
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
	c.parked, c.unparked = c.parked[:0], c.unparked[:0]
	c.effects, c.calls, c.cmds, c.results = c.effects[:0], c.calls[:0], c.cmds[:0], c.results[:0]
	c.refused, c.notices = c.refused[:0], c.notices[:0]
}

package scheduler

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
)

// cycle is the scratch memory of a commit cycle; it is reused. What a round decides waits here until it is committed.
type cycle struct {
	now core.Instant
	// leave is when the committed effects leave, from which the time that commands have left is measured.
	leave core.Instant
	mail  *Mail
	flush bool
	// most is how many task writes a batch may have.
	most int
	// rounds is the number of the present round.
	rounds int64
	// looked is whether the cycle has looked at tasks that wait for room.
	looked bool
	// noRoom is whether parked tasks were not claimed because the node's window is full.
	noRoom bool
	// answers counts agents' answers in the cycle, late those that took longer than usual.
	answers, late int
	// bytes is the size of the batch, by TaskWrite.Size.
	bytes int
	// pos is how far each list of the mail has been applied.
	pos struct{ published, control, number, reply, unserved, probed, task, sub int }

	// lost are the partitions that the cycle let go; stopped are those of them that an error stopped.
	lost    []int
	stopped []int
	// failed joins the errors that stopped single partitions.
	failed error
	// unread is the plan, unreadable here, of the task that find last returned; nil: its plan can be read.
	unread *core.UnreadablePlan
	// out is where the core puts the outcome of an event.
	out   core.Outcome
	batch core.Batch
	// records is the memory in which the batch's writes have their records.
	records []core.Record
	// owned are the partitions of the batch, in the order of batch.Partitions.
	owned []*partition
	// touched are the tasks used in the round.
	touched []touch
	effects []pending
	calls   calls
	// parked are tasks that the round parks; unparked are tasks that it takes up, with where they were
	// parked.
	parked   []parked
	unparked []parked
	// newFans are fans that began in this round, whose first child is still to be born.
	newFans []*fan
	// resuming is whether a takeover is resuming a stored task.
	resuming bool
	// endings and created are to be published: ends of tasks, and creations for labels that ask for them.
	endings []core.Ending
	created []core.Ending
	// refused are refusals to be stored in the event stream; notices are statuses for submitters.
	refused []notice
	notices []notice
	cmds    []core.Command
	// results is the memory in which commands have the results that they carry.
	results []core.StepResult
}

// touch is a task used in the round, with its partition.
type touch struct {
	p *partition
	e *entry
}

// pending is an effect that waits for its commit.
type pending struct {
	p      *partition
	e      *entry
	effect core.Effect
	// end is the end number of an ending.
	end int64

	// refused is inRound.refused when the effect was decided; see there.
	refused int
}

// notice is a status about a submission. It waits for the commit, because it may speak of a task that is
// being committed.
type notice struct {
	p *partition
	// subject is the submitter's.
	subject string
	status  core.Status
}

// parked is a task that a row of the round parks at an agent, or takes up there.
type parked struct {
	p    *partition
	slot *agentSlot
	e    *entry
}

// writesLeft returns how many more writes the batch can take.
func (c *cycle) writesLeft() int { return c.most - len(c.batch.Writes) }

// roomy reports whether the batch can take another write, beside the first children that are still to be
// born.
func (c *cycle) roomy() bool { return c.writesLeft() > len(c.newFans) && c.bytes < core.BatchBytesMax }

// makes reports whether the task is created by this round. Only the commit tells whether its id was free, so
// nothing else may happen to it before.
func (c *cycle) makes(e *entry) bool {
	return e.round.write != 0 && c.batch.Writes[e.round.write-1].Birth
}

// waits reports whether an event about a task has to wait for the next round.
func (c *cycle) waits(e *entry) bool { return !c.roomy() || e != nil && c.makes(e) }

// use lists a task as used in this round: at the end of the round it is settled, and dropped unless something
// pins it.
func (c *cycle) use(p *partition, e *entry) { c.touched = append(c.touched, touch{p, e}) }

// forgetGone forgets the tasks used in this round that are not in memory any more.
func (c *cycle) forgetGone() {
	c.touched = slices.DeleteFunc(c.touched, func(x touch) bool { return x.p.tasks[x.e.task.Number] != x.e })
}

// unpark lists a task that was parked at the agent from and is not parked there any more.
func (c *cycle) unpark(p *partition, e *entry, from string) {
	if slot := p.slots[from]; slot != nil && e.task.WaitsFor != from {
		c.unparked = append(c.unparked, parked{p, slot, e})
	}
}

// recordsMoved bounds the records of a write that are moved in the round's memory when more follow; those of a longer one grow
// in memory of its own.
const recordsMoved = 16

// write adds the records of the outcome to the batch. A task has one write in a batch, however many events it
// has.
func (c *cycle) write(e *entry, created bool) {
	if e.round.write == 0 {
		c.batch.Writes = append(c.batch.Writes, core.TaskWrite{Task: e.task, Birth: created})
		e.round.write = len(c.batch.Writes)
	} else {
		c.bytes -= c.batch.Writes[e.round.write-1].Size()
	}
	w := &c.batch.Writes[e.round.write-1]
	if len(w.Records) < recordsMoved {
		from := len(c.records)
		c.records = append(append(c.records, w.Records...), c.out.Records...)
		w.Records = c.records[from:len(c.records):len(c.records)]
	} else { // a task of many steps, many of which are answered in one round
		w.Records = append(w.Records, c.out.Records...)
	}
	w.Row = w.Row || (c.out.Row && !w.Birth)
	c.bytes += w.Size()
}

// refusal refuses a submission: in the event stream, and to the submitter. code is an HTTP status.
func (c *cycle) refusal(p *partition, sub *core.Submission, code int, why string) {
	status := core.Status{ID: sub.ID, Type: sub.Type, Status: core.StatusRefused, Code: code, Error: why, At: c.now}
	c.refused = append(c.refused, notice{p: p, status: status})
	c.notify(p, sub.ReplyTo, status)
}

// notify sends a submitter a status after the commit, if the submission named a reply subject.
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

// tellCreated publishes the creation of a task whose labels ask for that.
func (c *cycle) tellCreated(t *core.Task) {
	if len(t.Labels) > 0 && core.TellsCreated(t.Labels) {
		c.created = append(c.created, core.Ending{
			Partition: t.Partition, ID: t.ID, Type: t.Type, State: core.StatusCreated, Seq: 1, Labels: core.FormatLabels(t.Labels), CreatedAt: t.CreatedAt, At: c.now,
		})
	}
}

// noteStopped takes note of the error that stopped a partition. A successor's takeover is no error.
func (c *cycle) noteStopped(partition int, err error) {
	if errors.Is(err, core.ErrOvertaken) {
		return
	}
	c.stopped = append(c.stopped, partition)
	c.failed = errors.Join(c.failed, err)
}

// fenceStopped is Shard.stop for an error in the middle of a commit: it returns a result that lets the
// partition go as if it had been fenced, or the error if that stops more than one partition.
func (c *cycle) fenceStopped(err error) (core.CommitResult, error) {
	f := core.FaultOf(err)
	if f.Stops != core.StopsPartition {
		return core.CommitResult{}, err
	}
	c.noteStopped(f.Partition, err)
	return core.CommitResult{Fenced: []int{f.Partition}}, nil
}

// endRound clears what the round collected and keeps the memory.
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

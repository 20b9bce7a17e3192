package scheduler

import (
	"slices"
	"sync"

	"duly.dev/duly/internal/core"
)

// Inbox collects what arrives for the partitions of one shard until its next commit cycle. Its methods may be called
// from any goroutine.
type Inbox struct {
	now func() core.Instant
	// signal tells the committer that there may be something for a cycle.
	signal signal

	mu   sync.Mutex
	room sync.Cond
	mail *Mail
	// spare is the memory of an earlier mail, used for the next one.
	spare *Mail
	// grants is where each grant is in the mail, so that a newer one replaces it.
	grants map[limitOf]int
	// due is whether there is something for a cycle.
	due   bool
	gates map[int]*inlet
	// parked is whether parked tasks wait for room in the node's window.
	parked    bool
	memory    *Memory
	admission *Admission
	shard     int // of the admission
}

// inlet stops the reader of a partition's task stream while the partition has enough in flight.
type inlet struct {
	// open is how many more submissions it takes.
	open   int
	closed bool
	// head is when the stream stored the message that waits for room; 0: none waits.
	head core.Instant
}

func newInbox(now func() core.Instant, memory *Memory, admission *Admission) *Inbox {
	b := &Inbox{now: now, signal: newSignal(), mail: &Mail{}, spare: &Mail{}, grants: map[limitOf]int{}, gates: map[int]*inlet{}, memory: memory, admission: admission}
	b.room.L = &b.mu
	memory.onRoom(func() {
		b.mu.Lock()
		b.room.Broadcast()
		b.unlockDue() // parked tasks may wait for memory
	})
	b.shard = admission.enroll(func() {
		b.mu.Lock()
		b.room.Broadcast()
		b.unlockParked()
	})
	return b
}

// awaitRoom says whether parked tasks of the shard wait for room in the node's window. If so, a cycle is due
// when there is room.
func (b *Inbox) awaitRoom(waits bool) {
	b.mu.Lock()
	b.parked = waits
	b.unlockParked()
}

// unlockParked unlocks the inbox, and asks for a cycle if parked tasks wait for room in the window and there is
// some.
func (b *Inbox) unlockParked() {
	if b.parked && b.admission.TakesUp() > 0 {
		b.unlockDue()
		return
	}
	b.mu.Unlock()
}

// Reply takes an agent's answer and stamps it with the time. If more answers came than may wait for a commit
// cycle it is dropped, as the network may drop it: an agent can send as many as it likes, and this node must
// not run out of memory.
func (b *Inbox) Reply(r core.Reply) {
	b.mu.Lock()
	size := int64(replyBytesBesides + len(r.Result) + len(r.Error) + len(r.From))
	if b.mail.replies+size > b.memory.replies() {
		b.mail.lost++
		b.unlockDue()
		return
	}
	b.mail.replies += size
	b.mail.Replies = append(b.mail.Replies, ReplyMail{At: b.now(), Reply: r})
	b.unlockDue()
}

// Unserved takes the news that nobody subscribes to a command's subject, as a reply without content.
func (b *Inbox) Unserved(r core.Reply) {
	b.mu.Lock()
	b.mail.Unserved = append(b.mail.Unserved, ReplyMail{At: b.now(), Reply: r})
	b.unlockDue()
}

// Control takes a message of the control stream and stamps it with the time. It is dropped if the partition
// is no longer read here.
func (b *Inbox) Control(m ControlMail) {
	b.mu.Lock()
	if b.gates[m.Partition] == nil {
		b.mu.Unlock()
		return
	}
	m.At = b.now()
	b.mail.Controls = append(b.mail.Controls, m)
	b.unlockDue()
}

// PlansChanged makes the shard read the plans again.
func (b *Inbox) PlansChanged() {
	b.mu.Lock()
	b.mail.PlansChanged = true
	b.unlockDue()
}

// Pauses replaces the pauses that the shard knows of.
func (b *Inbox) Pauses(all []core.Pause) {
	b.mu.Lock()
	b.mail.Pauses = &all
	b.unlockDue()
}

// Breakers replaces the breakers that the shard knows of: those that are not closed.
func (b *Inbox) Breakers(all []core.Breaker) {
	b.mu.Lock()
	b.mail.Breakers = &all
	b.unlockDue()
}

// Limits replaces the limits that the shard knows of. Grants that wait in the mail are dropped: they may be
// of another limit.
func (b *Inbox) Limits(all []core.Limit) {
	b.mu.Lock()
	b.mail.Limits, b.mail.Grants = &all, b.mail.Grants[:0]
	clear(b.grants)
	b.unlockDue()
}

// grant takes a grant, in place of one of the same limit that still waits in the mail.
func (b *Inbox) grant(of limitOf, m GrantMail) {
	b.mu.Lock()
	if i, waits := b.grants[of]; waits {
		b.mail.Grants[i] = m
	} else {
		b.grants[of] = len(b.mail.Grants)
		b.mail.Grants = append(b.mail.Grants, m)
	}
	b.unlockDue()
}

// counted takes which scheduler counts what each partition has out.
func (b *Inbox) counted(all []core.Counting) {
	b.mu.Lock()
	b.mail.Counted = all
	b.unlockDue()
}

// probed takes an agent's answer about a silent do, and stamps it with the time.
func (b *Inbox) probed(m ProbedMail) {
	b.mu.Lock()
	m.At = b.now()
	b.mail.Probed = append(b.mail.Probed, m)
	b.unlockDue()
}

// published takes a confirmation of published endings.
func (b *Inbox) published(m PublishedMail) {
	b.mu.Lock()
	b.mail.Published = append(b.mail.Published, m)
	b.unlockDue()
}

// Tasks takes a message of the task stream and stamps it with the time. It blocks while the partition or the
// node has enough in flight; this is the backpressure on the stream. It reports false if the partition is no
// longer read here.
func (b *Inbox) Tasks(m TaskMail) bool {
	b.mu.Lock()
	g := b.gates[m.Partition]
	for g != nil && !g.closed && !b.enters(g, m.Stored) {
		b.room.Wait()
	}
	if g == nil || g.closed {
		b.mu.Unlock()
		return false
	}
	g.open -= max(1, len(m.Submissions))
	m.At = b.now()
	b.mail.Tasks = append(b.mail.Tasks, m)
	bytes, tasks := mailBytes(&m), len(m.Submissions)
	b.mail.bytes += bytes
	b.mail.tasks += tasks
	b.memory.charge(bytes)
	b.admission.charge(tasks)
	b.noteOldest()
	b.unlockDue()
	b.admission.passOn()
	return true
}

// Admits reports whether Tasks would take a message of the partition without blocking, if no other reader
// waits.
func (b *Inbox) Admits(partition int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gates[partition]
	return g != nil && b.admits(g)
}

// enters reports whether a message that the stream stored then may come in now, and otherwise has it wait. Of
// several that wait for room the one stored first is next, over all shards of the node: a partition must not wait for as
// long as others fill the window. The lock is held.
func (b *Inbox) enters(g *inlet, stored core.Instant) bool {
	if b.admits(g) && b.first(stored) && !b.admission.yields(b.shard, stored) {
		if g.head != 0 {
			g.head = 0
			b.room.Broadcast() // it is the turn of another
		}
		return true
	}
	if g.head == 0 {
		g.head = max(stored, 1)
		b.noteOldest()
	}
	return false
}

// noteOldest tells the other shards when the message was stored that waits here longest and has room but for the window.
// The lock is held; passOn follows once it is not.
func (b *Inbox) noteOldest() {
	var oldest core.Instant
	for _, g := range b.gates {
		if g.head != 0 && g.open > 0 && (oldest == 0 || g.head < oldest) {
			oldest = g.head
		}
	}
	b.admission.waits(b.shard, oldest)
}

// first reports whether no message stored earlier waits at a gate that may take it. The lock is held.
func (b *Inbox) first(stored core.Instant) bool {
	for _, other := range b.gates {
		if other.head != 0 && other.head < stored && other.open > 0 {
			return false
		}
	}
	return true
}

// full reports whether a partition that is read here has as much in flight as it may.
func (b *Inbox) full(partition int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gates[partition]
	return g != nil && !b.admits(g)
}

// admits reports whether a gate may let a message in, whoever else waits. The lock is held.
func (b *Inbox) admits(g *inlet) bool { return g.open > 0 && !b.memory.over() && b.admission.Room() }

// refund gives back what mail was charged with. The lock must not be held, because readers may go on at once.
func (b *Inbox) refund(bytes int64, tasks int) {
	b.memory.charge(-bytes)
	b.admission.charge(-tasks)
}

// unlockDue unlocks the inbox and asks for a commit cycle.
func (b *Inbox) unlockDue() {
	b.due = true
	b.mu.Unlock()
	b.signal.set()
}

// isDue reports whether there is something for a commit cycle.
func (b *Inbox) isDue() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.due
}

// take returns what has arrived since the last call.
func (b *Inbox) take() (full *Mail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full, b.mail, b.spare = b.mail, b.spare, nil
	b.due = false
	clear(b.grants)
	return full
}

// giveBack takes mail back that a cycle has handled, and what it was charged with.
func (b *Inbox) giveBack(m *Mail) {
	m.reset()
	bytes, tasks := m.bytes, m.tasks
	m.bytes, m.tasks = 0, 0
	b.mu.Lock()
	b.spare = m
	b.mu.Unlock()
	b.refund(bytes, tasks)
}

// setRoom says how many more submissions the partition may take up; those that wait in the mail are
// subtracted.
func (b *Inbox) setRoom(partition, room int) {
	b.mu.Lock()
	g := b.gates[partition]
	if g == nil {
		b.mu.Unlock()
		return
	}
	for i := range b.mail.Tasks {
		if b.mail.Tasks[i].Partition == partition {
			room -= max(1, len(b.mail.Tasks[i].Submissions))
		}
	}
	if (g.open > 0) != (room > 0) { // whether this gate's message is first in line has changed
		b.room.Broadcast()
	}
	g.open = room
	b.noteOldest()
	b.mu.Unlock()
	b.admission.passOn()
}

// openGate lets a partition's tasks and controls in. It asks for a commit cycle, because there may be parked
// tasks to claim.
func (b *Inbox) openGate(partition, room int) {
	b.mu.Lock()
	b.gates[partition] = &inlet{open: room}
	b.unlockDue()
}

// closeGate keeps a partition's tasks and controls out, and stops its reader from waiting. What is in the
// mail and was not handled is thrown away: the next owner, which may be this node, reads it again from the
// cursor. If some of it were handled nevertheless, a later message would be handled before an earlier one.
func (b *Inbox) closeGate(partition int) {
	b.mu.Lock()
	if g := b.gates[partition]; g != nil {
		g.closed = true
		delete(b.gates, partition)
	}
	var bytes int64
	tasks := 0
	b.mail.Tasks = slices.DeleteFunc(b.mail.Tasks, func(m TaskMail) bool {
		if m.Partition == partition {
			bytes += mailBytes(&m)
			tasks += len(m.Submissions)
		}
		return m.Partition == partition
	})
	b.mail.bytes -= bytes
	b.mail.tasks -= tasks
	b.mail.Controls = slices.DeleteFunc(b.mail.Controls, func(m ControlMail) bool { return m.Partition == partition })
	b.room.Broadcast()
	b.noteOldest()
	b.mu.Unlock()
	b.refund(bytes, tasks)
	b.admission.passOn()
}

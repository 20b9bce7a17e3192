package scheduler

import (
	"slices"
	"sync"

	"duly.dev/duly/internal/core"
)

// Inbox collects what arrives for the partitions of one shard until its next commit cycle. Its methods may be called
// from any goroutine.
type Inbox struct {
	now    func() core.Instant
	signal signal // there may be something for a cycle

	mu        sync.Mutex
	room      sync.Cond
	mail      *Mail
	spare     *Mail           // memory for the mail after this one
	grants    map[limitOf]int // where each grant is in the mail
	due       bool            // there is something for a cycle
	gates     map[int]*inlet
	waiting   int  // gates at which a message waits for room
	parked    bool // parked tasks wait for room in the window
	memory    *Memory
	admission *Admission
}

// inlet holds new work of a partition back while the partition has enough in flight.
type inlet struct {
	open   int // submissions that it may still take
	closed bool
	head   core.Instant // when the message was stored that waits for room; 0: none does
}

func newInbox(now func() core.Instant, memory *Memory, admission *Admission) *Inbox {
	b := &Inbox{now: now, signal: newSignal(), mail: &Mail{}, spare: &Mail{}, grants: map[limitOf]int{}, gates: map[int]*inlet{}, memory: memory, admission: admission}
	b.room.L = &b.mu
	memory.onRoom(func() {
		b.mu.Lock()
		b.room.Broadcast()
		b.unlockDue() // parked tasks may wait for it
	})
	admission.whenRoom(func() {
		b.mu.Lock()
		b.room.Broadcast()
		b.claimed()
	})
	return b
}

// awaitRoom says whether parked tasks of the shard wait for room in the window: then a cycle is due when there is some.
func (b *Inbox) awaitRoom(waits bool) {
	b.mu.Lock()
	b.parked = waits
	b.claimed()
}

// claimed unlocks the inbox, and asks for a cycle if parked tasks wait for room that there is.
func (b *Inbox) claimed() {
	if b.parked && b.admission.TakesUp() > 0 {
		b.unlockDue()
		return
	}
	b.mu.Unlock()
}

// Reply takes an agent's answer and stamps it. When more have come than may wait for a commit cycle it is lost, as in the
// network: an agent can send as many as it likes, and this node must not run out of memory.
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

// Unserved takes the news that no agent listens to a command, as a reply without content.
func (b *Inbox) Unserved(r core.Reply) {
	b.mu.Lock()
	b.mail.Unserved = append(b.mail.Unserved, ReplyMail{At: b.now(), Reply: r})
	b.unlockDue()
}

// Control takes a message of the control stream and stamps it, or lets it go when the partition is no longer read here.
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

// Limits replaces the limits that the shard knows of. Grants of before may be of what is not the same any more.
func (b *Inbox) Limits(all []core.Limit) {
	b.mu.Lock()
	b.mail.Limits, b.mail.Grants = &all, b.mail.Grants[:0]
	clear(b.grants)
	b.unlockDue()
}

// grant takes what the shard may use of a limit, instead of what it was to hear of it before.
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

// counted takes who counts what partitions have out.
func (b *Inbox) counted(all []core.Counting) {
	b.mu.Lock()
	b.mail.Counted = all
	b.unlockDue()
}

// probed takes what an agent says of a do that was silent, and stamps it.
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

// Tasks takes a message of the task stream and stamps it. It blocks while the partition or the node has as much in
// flight as it may: that is the backpressure on the stream. It reports false when the partition is no longer read here.
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
	b.unlockDue()
	return true
}

// Admits reports whether Tasks takes a message of the partition without blocking, where no other reader waits.
func (b *Inbox) Admits(partition int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gates[partition]
	return g != nil && b.admits(g)
}

// enters reports whether a gate lets a message in now, which was stored then. Where several wait for room the one that was
// stored first has it: else a partition could wait for as long as others fill the window. The inbox is locked.
func (b *Inbox) enters(g *inlet, stored core.Instant) bool {
	if b.admits(g) && (b.waiting == 0 || b.first(stored)) {
		if g.head != 0 {
			g.head = 0
			b.waiting--
			b.room.Broadcast() // it is the turn of another
		}
		return true
	}
	if g.head == 0 {
		g.head = max(stored, 1)
		b.waiting++
	}
	return false
}

// first reports whether no message that was stored earlier waits at a gate that may take it. The inbox is locked.
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

// admits reports whether a gate lets a message in. The inbox is locked.
func (b *Inbox) admits(g *inlet) bool { return g.open > 0 && !b.memory.over() && b.admission.Room() }

// letGo gives back what mail held. The inbox is not locked: readers may go on at once.
func (b *Inbox) letGo(bytes int64, tasks int) {
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

// giveBack returns the memory of mail that is done.
func (b *Inbox) giveBack(m *Mail) {
	m.reset()
	bytes, tasks := m.bytes, m.tasks
	m.bytes, m.tasks = 0, 0
	b.mu.Lock()
	b.spare = m
	b.mu.Unlock()
	b.letGo(bytes, tasks)
}

// setRoom says how many submissions the partition may still take; those that wait in the mail already are counted off.
func (b *Inbox) setRoom(partition, room int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gates[partition]
	if g == nil {
		return
	}
	for i := range b.mail.Tasks {
		if b.mail.Tasks[i].Partition == partition {
			room -= max(1, len(b.mail.Tasks[i].Submissions))
		}
	}
	if (g.open > 0) != (room > 0) { // else those behind its message would wait although there is room
		b.room.Broadcast()
	}
	g.open = room
}

// openGate lets a partition's tasks and controls in, and asks for a commit cycle: there may be parked tasks to load.
func (b *Inbox) openGate(partition, room int) {
	b.mu.Lock()
	b.gates[partition] = &inlet{open: room}
	b.unlockDue()
}

// closeGate keeps them out and ends the waiting of its reader. What lies here unhandled is thrown away: the next owner,
// which may be this node, reads it again from its cursor, and must not find a later message handled before an earlier
// one.
func (b *Inbox) closeGate(partition int) {
	b.mu.Lock()
	if g := b.gates[partition]; g != nil {
		g.closed = true
		delete(b.gates, partition)
		if g.head != 0 {
			b.waiting--
		}
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
	b.mu.Unlock()
	b.letGo(bytes, tasks)
}

package scheduler

import (
	"slices"
	"sync"

	"duly.dev/duly/internal/core"
)

// Inbox gathers what arrives for the partitions of one shard until its next
// turn. Its methods may be called from any goroutine.
type Inbox struct {
	now  func() core.Instant
	wake chan struct{} // has an element when there is mail
	all  chan struct{} // has an element when as many answers have come as were expected

	mu       sync.Mutex
	room     sync.Cond
	mail     *Mail
	spare    *Mail
	gates    map[int]*gate
	expected int // answers; 0: nobody asks
	memory   *Memory
}

// gate holds new work of a partition back while it has enough in hand.
type gate struct {
	open   int // submissions it may still take
	closed bool
}

func newInbox(now func() core.Instant, memory *Memory) *Inbox {
	b := &Inbox{now: now, wake: make(chan struct{}, 1), all: make(chan struct{}, 1), mail: &Mail{}, spare: &Mail{}, gates: map[int]*gate{}, memory: memory}
	b.room.L = &b.mu
	memory.onRoom(func() {
		b.mu.Lock()
		b.room.Broadcast()
		b.unlockWake() // parked tasks may wait for it
	})
	return b
}

// Reply takes an agent's answer and stamps it.
func (b *Inbox) Reply(r core.Reply) {
	b.mu.Lock()
	b.mail.Replies = append(b.mail.Replies, ReplyMail{At: b.now(), Reply: r})
	b.answered()
	b.unlockWake()
}

// Unserved takes the news that no agent listens to a command, as a reply without content.
func (b *Inbox) Unserved(r core.Reply) {
	b.mu.Lock()
	b.mail.Unserved = append(b.mail.Unserved, ReplyMail{At: b.now(), Reply: r})
	b.answered()
	b.unlockWake()
}

// expect says how many answers there are to wait for; all gets an element when they
// have come, which may be at once. 0: nobody waits for them.
func (b *Inbox) expect(answers int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.all: // of an expectation before
	default:
	}
	b.expected = answers
	b.answered()
}

// expects reports whether answers are waited for, or have just come.
func (b *Inbox) expects() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expected > 0 || len(b.all) > 0
}

// pending is how much the mail asks to write, and whether there is mail that
// may take an ended task up again.
func (b *Inbox) pending() (writes int, revives bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mail.writes(), len(b.mail.Controls) > 0
}

// answered looks whether all answers are there that are expected. The inbox is held.
func (b *Inbox) answered() {
	if b.expected == 0 || len(b.mail.Replies)+len(b.mail.Unserved) < b.expected {
		return
	}
	b.expected = 0
	b.all <- struct{}{} // it has room for one, and nothing is expected any more
}

// Control takes a message of the control stream and stamps it, or lets it go
// when the partition is no longer read here.
func (b *Inbox) Control(m ControlMail) {
	b.mu.Lock()
	if b.gates[m.Partition] == nil {
		b.mu.Unlock()
		return
	}
	m.At = b.now()
	b.mail.Controls = append(b.mail.Controls, m)
	b.unlockWake()
}

// PlansChanged makes the shard read the plans again.
func (b *Inbox) PlansChanged() {
	b.mu.Lock()
	b.mail.PlansChanged = true
	b.unlockWake()
}

// told takes a confirmation of told endings.
func (b *Inbox) told(m ToldMail) {
	b.mu.Lock()
	b.mail.Told = append(b.mail.Told, m)
	b.unlockWake()
}

// Tasks takes a message of the task stream and stamps it. It blocks while the
// partition has as much in hand as it may: that is the backpressure on the
// stream. It reports false when the partition is no longer read here.
func (b *Inbox) Tasks(m TaskMail) bool {
	b.mu.Lock()
	g := b.gates[m.Partition]
	for g != nil && !g.closed && (g.open <= 0 || b.memory.over()) {
		b.room.Wait()
	}
	if g == nil || g.closed {
		b.mu.Unlock()
		return false
	}
	g.open -= max(1, len(m.Submissions))
	m.At = b.now()
	b.mail.Tasks = append(b.mail.Tasks, m)
	bytes := mailBytes(&m)
	b.mail.bytes += bytes
	b.memory.hold(bytes)
	b.unlockWake()
	return true
}

func (b *Inbox) unlockWake() {
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // a wake is pending
	}
}

// take returns what arrived and starts anew.
func (b *Inbox) take() *Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exchange()
}

// exchange puts empty mail in place of what arrived. The inbox is held.
func (b *Inbox) exchange() (full *Mail) {
	full, b.mail, b.spare = b.mail, b.spare, nil
	return full
}

// takeTogether is take for a turn of several shards, without what may take an ended task
// up again: that may have to wait for forgetting, and must not make the others wait.
func (b *Inbox) takeTogether() *Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := b.exchange()
	b.mail.Controls, full.Controls = full.Controls, b.mail.Controls
	return full
}

// giveBack returns the memory of a mail that is done.
func (b *Inbox) giveBack(m *Mail) {
	m.reset()
	bytes := m.bytes
	m.bytes = 0
	b.mu.Lock()
	b.spare = m
	b.mu.Unlock()
	b.memory.hold(-bytes)
}

// setRoom says how many submissions the partition may still take; the ones that
// wait in the mail already are counted off.
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
	if g.open <= 0 && room > 0 {
		b.room.Broadcast()
	}
	g.open = room
}

// openGate lets a partition's tasks and controls in, and asks for a turn: there
// may be parked tasks to take up.
func (b *Inbox) openGate(partition, room int) {
	b.mu.Lock()
	b.gates[partition] = &gate{open: room}
	b.unlockWake()
}

// closeGate keeps them out and frees whoever waits. What lies here unhandled is
// thrown away: the next owner, which may be us, reads it again from its cursor,
// and must not find a later message handled before an earlier one.
func (b *Inbox) closeGate(partition int) {
	b.mu.Lock()
	if g := b.gates[partition]; g != nil {
		g.closed = true
		delete(b.gates, partition)
	}
	var bytes int64
	b.mail.Tasks = slices.DeleteFunc(b.mail.Tasks, func(m TaskMail) bool {
		if m.Partition == partition {
			bytes += mailBytes(&m)
		}
		return m.Partition == partition
	})
	b.mail.bytes -= bytes
	b.mail.Controls = slices.DeleteFunc(b.mail.Controls, func(m ControlMail) bool { return m.Partition == partition })
	b.room.Broadcast()
	b.mu.Unlock()
	b.memory.hold(-bytes)
}

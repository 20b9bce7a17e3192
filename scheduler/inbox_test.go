package scheduler

import (
	"testing"
	"testing/synctest"

	"duly.dev/duly/internal/core"
)

func testInbox() *Inbox { return newInbox(func() core.Instant { return 77 }, nil, nil) }

func message(partition int, pos uint64, items int) TaskMail {
	return TaskMail{Partition: partition, Pos: pos, Submissions: make([]core.Submission, items)}
}

// A gate lets in what there is room for, holds the next message back, and lets
// it go when there is room again.
//
// covers: E15, I6
func TestGateHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testInbox()
		b.openGate(0, 3)
		b.openGate(1, 1)
		for pos := uint64(1); pos <= 2; pos++ {
			if !b.Tasks(message(0, pos, 2)) { // the last one in may overshoot
				t.Fatal("refused")
			}
		}
		var took bool
		go func() { took = b.Tasks(message(0, 3, 0)) }()
		synctest.Wait()
		if took || !b.Tasks(message(1, 9, 1)) {
			t.Fatal("a full partition lets in more, or holds up another")
		}
		b.setRoom(0, 4) // the four that lie here are counted off: still no room
		synctest.Wait()
		if took {
			t.Fatal("what waits in the mail was not counted")
		}
		m := b.take()
		if len(m.Tasks) != 3 || m.Tasks[0].At != 77 {
			t.Fatalf("mail %+v", m.Tasks)
		}
		b.giveBack(m)
		b.setRoom(0, 1)
		synctest.Wait()
		if !took || len(b.take().Tasks) != 1 {
			t.Fatal("there is room, but it waits")
		}
	})
}

// Closing a gate ends the waiting of its reader, and throws away what lies here: a
// later ownership reads it again from the cursor, in order.
func TestCloseGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testInbox()
		if b.Tasks(message(0, 1, 1)) {
			t.Fatal("a partition that is not read was let in")
		}
		b.openGate(0, 1)
		b.openGate(1, 9)
		b.Tasks(message(0, 1, 1))
		b.Tasks(message(1, 2, 1))
		b.Control(ControlMail{Partition: 0, Pos: 3})
		b.Control(ControlMail{Partition: 1, Pos: 4})
		took, done := true, false
		go func() { took, done = b.Tasks(message(0, 5, 1)), true }()
		synctest.Wait()
		if done {
			t.Fatal("no room, yet it did not wait")
		}
		b.closeGate(0)
		synctest.Wait()
		if !done || took {
			t.Fatalf("done %v, took %v", done, took)
		}
		b.Control(ControlMail{Partition: 0, Pos: 6})
		b.setRoom(0, 5)
		b.openGate(0, 5)
		m := b.take()
		if len(m.Tasks) != 1 || len(m.Controls) != 1 || m.Tasks[0].Partition+m.Controls[0].Partition != 2 {
			t.Fatalf("mail %+v %+v", m.Tasks, m.Controls)
		}
	})
}

// A gate that is opened again does not let in a message that waited at the old one.
func TestReopenedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testInbox()
		b.openGate(0, 1)
		b.Tasks(message(0, 1, 1))
		took := true
		go func() { took = b.Tasks(message(0, 2, 1)) }()
		synctest.Wait()
		b.closeGate(0)
		b.openGate(0, 9)
		synctest.Wait()
		if took || len(b.take().Tasks) != 0 {
			t.Fatal("a message of the ownership before was let in")
		}
	})
}

// Every kind of mail asks for a commit cycle, once for many, and is stamped.
func TestInboxWakes(t *testing.T) {
	b := testInbox()
	for name, post := range map[string]func(){
		"reply":     func() { b.Reply(core.Reply{}) },
		"unserved":  func() { b.Unserved(core.Reply{}) },
		"control":   func() { b.Control(ControlMail{}) },
		"plans":     b.PlansChanged,
		"published": func() { b.published(PublishedMail{}) },
		"tasks":     func() { b.Tasks(message(0, 1, 1)) },
	} {
		b.openGate(0, 9)
		<-b.signal
		post()
		post()
		select {
		case <-b.signal:
		default:
			t.Errorf("%s: no signal", name)
		}
		if !b.isDue() {
			t.Errorf("%s: no cycle is due", name)
		}
		m := b.take()
		if b.isDue() {
			t.Errorf("%s: a cycle is due without mail", name)
		}
		if m.Empty() {
			t.Errorf("%s: the mail is empty", name)
		}
		for _, at := range []core.Instant{first(m.Replies), first(m.Unserved)} {
			if at != 0 && at != 77 {
				t.Errorf("%s: stamped %d", name, at)
			}
		}
		b.giveBack(m)
		if !b.take().Empty() {
			t.Errorf("%s: mail that was given back is not empty", name)
		}
		b.giveBack(&Mail{})
	}
}

func first(mail []ReplyMail) core.Instant {
	if len(mail) == 0 {
		return 0
	}
	return mail[0].At
}

// TestRepliesAreBounded: an agent that answers without end does not take the memory of the node; what is too much is lost,
// as in the network, and after the next cycle there is room again.
//
// covers: E24
func TestRepliesAreBounded(t *testing.T) {
	b := testInbox()
	large := core.Reply{Result: make([]byte, 1<<20)}
	for range 2 * repliesLeast >> 20 {
		b.Reply(large)
	}
	full := b.take()
	if n := len(full.Replies); n != repliesLeast>>20-1 || full.lost != 2*repliesLeast>>20-n {
		t.Errorf("%d replies wait, %d are lost", n, full.lost)
	}
	b.giveBack(full)
	b.Reply(large)
	if next := b.take(); len(next.Replies) != 1 || next.lost != 0 {
		t.Errorf("%d replies, %d are lost", len(next.Replies), next.lost)
	}
}

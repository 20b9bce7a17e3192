package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"

	"duly.dev/duly/internal/core"
)

// Sixteen partitions that are read at once, with large inputs, hold no more bytes than
// the budget and one message of each reader; what is done with makes room again.
func TestMemoryBoundsWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, size, limit = 16, 256 << 10, 8 << 20
		memory := NewMemory(limit)
		shards := []*Inbox{newInbox(func() core.Instant { return 77 }, memory, nil), newInbox(func() core.Instant { return 77 }, memory, nil)}
		for p := range partitions {
			shards[p%2].openGate(p, 4096)
			go func() {
				for pos := uint64(1); ; pos++ {
					m := TaskMail{Partition: p, Pos: pos, Submissions: []core.Submission{{ID: fmt.Sprint(p, "-", pos), Input: make([]byte, size)}}}
					if !shards[p%2].Tasks(m) {
						return
					}
				}
			}()
		}
		read := 0
		for range 20 {
			synctest.Wait() // until no reader can go on
			if used := memory.Used(); used < limit || used > limit+partitions*(size+taskBytesBesides) {
				t.Fatalf("%d bytes are held, the limit is %d", used, limit)
			}
			for _, in := range shards {
				mail := in.take()
				read += len(mail.Tasks)
				in.giveBack(mail)
			}
		}
		if read < 20*limit/(size+taskBytesBesides) {
			t.Errorf("%d messages were read: the readers stood still", read)
		}
		for p := range partitions {
			shards[p%2].closeGate(p)
		}
		synctest.Wait()
		for _, in := range shards {
			in.giveBack(in.take())
		}
		if used := memory.Used(); used != 0 {
			t.Errorf("%d bytes are held by nothing", used)
		}
	})
}

// Each shard has a cycle when there is room again: parked tasks may wait for it.
func TestRoomAsksForACycle(t *testing.T) {
	memory := NewMemory(100)
	one, two := newInbox(func() core.Instant { return 77 }, memory, nil), newInbox(func() core.Instant { return 77 }, memory, nil)
	memory.charge(150)
	memory.charge(-10)
	if len(one.signal)+len(two.signal) != 0 {
		t.Error("a cycle is due without room")
	}
	memory.charge(-50)
	if len(one.signal) != 1 || len(two.signal) != 1 {
		t.Errorf("%d and %d signals, want 1 and 1", len(one.signal), len(two.signal))
	}
}

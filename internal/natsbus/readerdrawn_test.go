package natsbus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

// drawnBus is a partition with the readers that there were of it.
type drawnBus struct {
	t     *testing.T
	c     *Conn
	epoch int64
	next  int
	all   []uint64 // positions of its messages

	readers []*drawnReader // of this case
}

// drawnReader is a reader with what it has handed out.
type drawnReader struct {
	*Reader
	cursor uint64
	ackAll int // messages of which each but the last is acknowledged; 0: none is
	hold   sync.Mutex
	held   bool // by the case

	mu   sync.Mutex
	got  []*TaskMessage
	lost error
}

func (r *drawnReader) handle(m *TaskMessage) {
	r.hold.Lock()
	defer r.hold.Unlock()
	r.mu.Lock()
	r.got = append(r.got, m)
	n := len(r.got)
	r.mu.Unlock()
	if r.ackAll > 0 && n%r.ackAll != 0 {
		_ = m.Ack() // what is lost comes again
	}
}

func (r *drawnReader) release() {
	if r.held {
		r.held = false
		r.hold.Unlock()
	}
}

func (r *drawnReader) ended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

func (r *drawnReader) handed() []*TaskMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// TestReaderThroughAnything: whatever is delivered again, taken off on the way or removed, and whoever succeeds a reader from
// which place on, each reader hands out every message after its cursor once and in order, the newest all of them.
//
// covers: Q4, I5
func TestReaderThroughAnything(t *testing.T) {
	b := &drawnBus{t: t, c: ready(t)}
	rapid.Check(t, func(rt *rapid.T) {
		defer b.end()
		cursor := uint64(0)
		if len(b.all) > 0 {
			cursor = b.all[len(b.all)-1]
		}
		b.read(rt, cursor)
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			b.step(rt)
		}
		b.check(rt)
	})
}

// end stops what a case has begun.
func (b *drawnBus) end() {
	for _, r := range b.readers {
		r.release()
		r.Stop()
	}
	b.readers = nil
}

// read begins to read after a cursor, as the next owner.
func (b *drawnBus) read(rt *rapid.T, cursor uint64) {
	b.epoch++
	r := &drawnReader{cursor: cursor, ackAll: rapid.IntRange(0, 3).Draw(rt, "acks")}
	var err error
	r.Reader, err = b.c.ReadTasks(context.Background(), part, b.epoch, cursor, ReadConfig{Prefetch: rapid.IntRange(1, 5).Draw(rt, "prefetch")}, r.handle, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost = err
	})
	if err != nil {
		rt.Fatal(err)
	}
	b.readers = append(b.readers, r)
}

func (b *drawnBus) step(rt *rapid.T) {
	r := b.readers[len(b.readers)-1]
	handed := r.handed()
	switch what := rapid.IntRange(0, 9).Draw(rt, "what"); what {
	case 0, 1, 2, 3:
		b.publish(rapid.IntRange(1, 4).Draw(rt, "messages"), rapid.IntRange(1, 3).Draw(rt, "items"))
	case 4:
		if r.held {
			r.release()
		} else {
			r.hold.Lock()
			r.held = true
		}
	case 5:
		b.steal(rapid.IntRange(1, 3).Draw(rt, "stolen"))
	case 6:
		for _, name := range consumers(b.t, b.c) {
			_ = b.c.js.DeleteConsumer(within(b.t), names.StreamTasks(), name) // its reader may be doing so
		}
	case 7:
		if n := len(handed); n > 0 {
			_ = b.c.nc.Publish(handed[rapid.IntRange(0, 1000).Draw(rt, "again")%n].reply, []byte("-NAK")) // a connection that breaks is of other tests
		}
	case 8:
		r.recheck()
	default:
		cursor := r.cursor
		if n := len(handed); n > 0 {
			cursor = handed[rapid.IntRange(0, 1000).Draw(rt, "cursor")%n].Seq
		}
		if rapid.Bool().Draw(rt, "stops") {
			r.release()
			r.Stop()
		}
		b.read(rt, cursor)
	}
}

// publish publishes messages of this partition, and one of another behind them.
func (b *drawnBus) publish(messages, items int) {
	for range messages {
		var subs []core.Submission
		for range items {
			b.next++
			subs = append(subs, submission(b.next))
		}
		b.all = append(b.all, publishPack(b.t, b.c, part, subs...))
	}
	publishPack(b.t, b.c, part+1, core.Submission{Type: "order", ID: idIn(part+1, defaultPartitions, b.next), Input: []byte("1"), At: at})
}

// steal takes messages off the readers' consumers.
func (b *drawnBus) steal(n int) {
	for _, name := range consumers(b.t, b.c) {
		thief, err := b.c.js.Consumer(within(b.t), names.StreamTasks(), name)
		if err != nil {
			continue // it is being made again
		}
		if batch, err := thief.FetchNoWait(n); err == nil {
			for range batch.Messages() {
				continue
			}
		}
	}
}

// after are the positions after a cursor.
func (b *drawnBus) after(cursor uint64) []uint64 {
	i, _ := slices.BinarySearch(b.all, cursor+1)
	return b.all[i:]
}

func (b *drawnBus) check(rt *rapid.T) {
	newest := b.readers[len(b.readers)-1]
	newest.release()
	b.publish(1, 1) // shows a gap before it
	want := b.after(newest.cursor)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); len(newest.handed()) < len(want); <-tick.C {
		if time.Now().After(end) {
			rt.Fatalf("the newest reader, lost with %v, has handed out %s of %v", newest.ended(), positions(newest.handed()), want)
		}
	}
	for i, r := range b.readers {
		r.release()
		r.Stop()
		got, want := r.handed(), b.after(r.cursor)
		if len(got) > len(want) || !slices.EqualFunc(got, want[:len(got)], func(m *TaskMessage, seq uint64) bool { return m.Seq == seq }) {
			rt.Fatalf("reader %d of %d, after %d, has handed out %s, want %v", i, len(b.readers), r.cursor, positions(got), want)
		}
	}
	if err := newest.ended(); err != nil {
		rt.Fatal(err)
	}
}

func positions(all []*TaskMessage) string {
	seqs := make([]uint64, len(all))
	for i, m := range all {
		seqs[i] = m.Seq
	}
	return fmt.Sprint(seqs)
}

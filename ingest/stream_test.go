package ingest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
)

// streamName is Config.StreamOf with so many streams: partition p is in stream p mod K.
func streamName(streams int) func(int) string {
	return func(partition int) string { return fmt.Sprintf("TASKS_%d", partition%streams) }
}

// of are the ids of the messages of a partition, in their order.
func (l *memLog) of(partition int) (all []string) {
	for i := range l.got {
		if l.got[i].partition == partition {
			all = append(all, l.got[i].ids...)
		}
	}
	return all
}

// While the packs of one stream stay unanswered, as without a leader, those of the other leave and are answered as ever.
// What waits leaves when they have failed, the oldest first, and submitters are told as those of any stream.
//
// covers: D1, inv1
func TestSilentStreamHoldsUpItsOwn(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StreamOf, c.FlightsMax, c.PublishMax = streamName(2), 2, 4*time.Second })
	r.submit(epoch, "a1", "b3") // both of stream 1
	r.door.Flush(epoch)
	now := epoch
	for i := range 40 { // ten times its window, one pack after the other
		now = now.Add(50 * time.Millisecond)
		id, silent := fmt.Sprintf("x%d-%d", i, i%2*2), fmt.Sprintf("w%d-%d", i, 1+i%2*2)
		r.submit(now, silent, id)
		if due := r.door.Due(now); due != now {
			t.Fatalf("round %d: due %v, want at once", i, due.Sub(now))
		}
		r.door.Flush(now)
		if len(r.log.got) != 3+i || !slices.Equal(r.log.got[2+i].ids, []string{id}) {
			t.Fatalf("round %d: messages %+v, want the pack of the stream that answers, and no more", i, r.log.got[2:])
		}
		r.log.store(2 + i)
		r.door.Flush(now)
		if a := r.answer(id); a.Err != nil || a.Stream != "TASKS_0" {
			t.Fatalf("round %d: answer %+v", i, a)
		}
	}
	if due := r.door.Due(now); due != epoch.Add(4*time.Second) {
		t.Errorf("due after %v, want when the silent stream has had its time", due.Sub(epoch))
	}
	// One fails by its error, the other by its silence: for each a pack leaves, the one whose first came first.
	r.log.got[0].done(0, fmt.Errorf("pack: %w", ErrLogDown))
	r.door.Flush(now)
	r.refused("a1", 503, CauseLogDown)
	if len(r.log.got) != 43 || r.log.got[42].partition != 1 {
		t.Fatalf("messages %+v, want one more, of partition 1", r.log.got[42:])
	}
	now = epoch.Add(4 * time.Second)
	r.door.Flush(now)
	r.refused("b3", 504, causeOutcome)
	if len(r.log.got) != 44 || r.log.got[43].partition != 3 {
		t.Fatalf("messages %+v, want one more, of partition 3", r.log.got[43:])
	}
	var want [4][]string
	for i := range 40 {
		want[1+i%2*2] = append(want[1+i%2*2], fmt.Sprintf("w%d-%d", i, 1+i%2*2))
	}
	for _, n := range []int{42, 43} { // it has a leader again
		if m := &r.log.got[n]; !slices.Equal(m.ids, want[m.partition]) {
			t.Errorf("partition %d: %v, want all that waited, in their order", m.partition, m.ids)
		}
		r.log.store(n)
	}
	r.door.Flush(now)
	if a := r.answer("w39-3"); a.Err != nil || a.Stream != "TASKS_1" {
		t.Errorf("answer %+v", a)
	}
	r.idle()
}

// Packs of a stream leave in the order in which their first came, whatever other streams do, and those of a partition
// have its submissions in their order.
func TestOrderWithinAStream(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StreamOf, c.FlightsMax, c.PackItems = streamName(2), 1, 2 })
	want := map[int][]string{}
	now := epoch
	submit := func(ids ...string) {
		for _, id := range ids {
			now = now.Add(time.Millisecond)
			r.submit(now, id)
			p := byDigit(id, 4)
			want[p] = append(want[p], id)
		}
	}
	submit("a3", "a0")
	r.door.Flush(now.Add(time.Second)) // one of each stream, which fills both windows
	submit("b3", "b1", "b2", "b0", "c1", "c0", "d1")
	now = now.Add(time.Second)
	next, order := 0, []int(nil)
	for !r.door.Idle() {
		if next == len(r.log.got) {
			t.Fatalf("%d messages, and nothing more leaves", next)
		}
		if p := r.log.got[next].partition; p%2 == 1 {
			order = append(order, p)
		}
		r.log.store(next)
		next++
		r.door.Flush(now)
	}
	// Full packs do not wait: the second of partition 1 overtakes b3.
	if !slices.Equal(order, []int{3, 1, 3, 1}) {
		t.Errorf("packs of stream 1 left in the order of partitions %v", order)
	}
	for p, ids := range want {
		if got := r.log.of(p); !slices.Equal(got, ids) {
			t.Errorf("partition %d: %v, want %v", p, got, ids)
		}
	}
	r.idle()
}

// A stream that does not answer uses up its share of the room: what comes for it is refused, and the others have all
// of theirs, each class what it has of it.
//
// covers: E14, I6
func TestShareOfAStream(t *testing.T) {
	t.Run("items", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.StreamOf, c.ItemsMax = streamName(3), 25 }) // 8 each
		for p := 1; p <= 2; p++ {
			for i := range 9 {
				r.classed(fmt.Sprintf("silent%d-%d", i, p), "high")
			}
			e := r.refused(fmt.Sprintf("silent8-%d", p), 429, CauseFull)
			if want := fmt.Sprintf("priority high in stream TASKS_%d: the limits are 8 unanswered requests", p); e.Retry <= 0 || !strings.Contains(e.Description, want) {
				t.Errorf("retry %v: %s, want %s", e.Retry, e, want)
			}
		}
		for i, class := range []string{"low", "low", "low", "low", "normal", "normal", "normal", "high"} {
			id := fmt.Sprintf("%s%d-0", class, i)
			if r.classed(id, class); len(r.answers[id]) > 0 {
				t.Fatalf("%s refused, with %d of 8 used in its stream: %v", id, i, r.answers[id][0].Err)
			}
		}
		r.classed("over-0", "high")
		r.refused("over-0", 429, CauseFull)
		r.door.Flush(epoch.Add(time.Second))
		for i := range r.log.got {
			if r.log.got[i].partition == 1 {
				r.log.store(i)
			}
		}
		r.door.Flush(epoch.Add(time.Second))
		r.submit(epoch, "again-1") // room again
		if len(r.answers["again-1"]) != 0 {
			t.Errorf("refused though its stream has answered: %v", r.answers["again-1"][0].Err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.StreamOf, c.BytesMax = streamName(2), 4000 })
		for _, id := range []string{"a1", "b1", "c1", "a0", "b0", "c0"} {
			req := r.request(id)
			req.Input = jsonOf(500)
			r.door.Submit(epoch, req)
		}
		for _, id := range []string{"c1", "c0"} {
			r.refused(id, 429, CauseFull)
		}
		if len(r.answers) != 2 {
			t.Errorf("%d refused, want 2: the others fit the share of their stream", len(r.answers))
		}
		if st := r.door.Stats(epoch); st.Items != 4 || st.Bytes < 4*500 || st.Bytes > 4*1000 {
			t.Errorf("%d items of %d bytes, want the 4 of 500 to 1000 each", st.Items, st.Bytes)
		}
		r.door.Close(epoch)
		for i := range r.log.got {
			r.log.store(i)
		}
		r.door.Flush(epoch)
		r.idle()
	})
	t.Run("too little to be shared", func(t *testing.T) {
		for name, change := range map[string]func(*Config){"ItemsMax is 2": func(c *Config) { c.ItemsMax = 2 }, "BytesMax 2": func(c *Config) { c.BytesMax = 2 }} {
			cfg := Config{StreamOf: streamName(3), Partitions: 4, PartitionOf: byDigit}
			change(&cfg)
			if _, err := NewDoor(cfg, plans(), &memLog{}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "want 3 or more") {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
}

// Packs do not wait longer for company because of what another stream has not answered.
func TestWindowOfAStream(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StreamOf = streamName(2) })
	r.submit(epoch, ids("x", 21, 1)...)
	r.submit(epoch, "a0")
	for i, want := range []time.Duration{0, ms(10)} {
		if got := r.door.window(r.door.streams[i]); got != want {
			t.Errorf("stream %d: window %v, want %v", i, got, want)
		}
	}
	if due := r.door.Due(epoch); due != epoch {
		t.Errorf("due after %v, want at once, for the pack of the first stream", due.Sub(epoch))
	}
	if r.door.Flush(epoch); len(r.log.got) != 1 || !slices.Equal(r.log.got[0].ids, []string{"a0"}) {
		t.Fatalf("messages %+v, want the pack of the first stream alone", r.log.got)
	}
	if due := r.door.Due(epoch); due != epoch.Add(ms(10)) {
		t.Errorf("due after %v, want the window of the other, %v", due.Sub(epoch), ms(10))
	}
}

// halfLog is a stream that stores, and one that does not answer.
type halfLog struct {
	slowLog
	silent sync.Map // ids that went to it
}

func (l *halfLog) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	if partition%2 == 0 {
		l.slowLog.Publish(partition, subs, done)
		return
	}
	for i := range subs {
		l.silent.Store(subs[i].ID, true)
	}
}

// The same in the role: the stream that stores answers each request in its time, through seconds of silence of the
// other, and the end waits for no more than that silence may last.
//
// covers: E9, inv1
func TestRunWithASilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, other := newTally(), newTally()
		log := &halfLog{slowLog: slowLog{after: 2 * time.Millisecond}}
		in, stop := running(t, log, func(c *Config) { c.StreamOf = streamName(2) })
		n := 0
		for range 500 { // more than half of PublishMax
			in.Submit(silent.request(fmt.Sprintf("s%d-%d", n, 1+n%4*2)))
			began := time.Now()
			in.Submit(other.request(fmt.Sprintf("o%d-%d", n, n%4*2)))
			n++
			<-time.After(5 * time.Millisecond)
			synctest.Wait()
			other.once(t, n)
			if d := other.last.Sub(began); d != log.after {
				t.Fatalf("request %d answered after %v, want the stream's %v", n, d, log.after)
			}
		}
		silent.once(t, 0)
		began := time.Now()
		stop()
		silent.once(t, n)
		if other.accepted != n || silent.causes[causeOutcome] != n {
			t.Errorf("accepted %d, refused of the silent %v, want %d each, the latter as unknown", other.accepted, silent.causes, n)
		}
		if d := time.Since(began); d != defaultPublishMax {
			t.Errorf("ended after %v, want %v: what was packed leaves at the end", d, defaultPublishMax)
		}
		for i := range n {
			if id := fmt.Sprintf("s%d-%d", i, 1+i%4*2); !has(&log.silent, id) {
				t.Fatalf("%s never went to its stream", id)
			}
		}
	})
}

func has(m *sync.Map, id string) bool {
	_, ok := m.Load(id)
	return ok
}

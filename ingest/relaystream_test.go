package ingest

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
)

// leaders is a log of several task streams, as streamName names them, of which some do not answer, or are out of reach.
type leaders struct {
	streams int

	mu      sync.Mutex
	silent  map[int]bool
	down    map[int]bool
	slow    map[int]time.Duration
	stored  map[string]time.Time
	sent    map[string]int
	waiting map[int]int // submissions that a stream has been sent and has not answered
	most    int         // of these, of one stream
}

func newLeaders(streams int) *leaders {
	return &leaders{streams: streams, silent: map[int]bool{}, down: map[int]bool{}, slow: map[int]time.Duration{}, stored: map[string]time.Time{}, sent: map[string]int{}, waiting: map[int]int{}}
}

func (l *leaders) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stream := partition % l.streams
	ids := make([]string, len(subs))
	for i := range subs {
		ids[i] = subs[i].ID
		l.sent[ids[i]]++
	}
	if l.silent[stream] {
		l.waiting[stream] += len(ids)
		l.most = max(l.most, l.waiting[stream])
		time.AfterFunc(defaultPublishMax, func() { // when the door gives them up
			l.mu.Lock()
			defer l.mu.Unlock()
			l.waiting[stream] -= len(ids)
		})
		return
	}
	if l.down[stream] {
		time.AfterFunc(time.Millisecond, func() { done(0, fmt.Errorf("no responders: %w", ErrLogDown)) })
		return
	}
	time.AfterFunc(max(2*time.Millisecond, l.slow[stream]), func() {
		l.mu.Lock()
		for _, id := range ids {
			if l.stored[id].IsZero() {
				l.stored[id] = time.Now()
			}
		}
		l.mu.Unlock()
		done(1, nil)
	})
}

func (l *leaders) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// tries is how often a stream has been sent ids.
func (l *leaders) tries(ids ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		n += l.sent[id]
	}
	return n
}

func (l *leaders) when(id string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stored[id]
}

// TestRelayWithASilentStream: while a task stream does not answer, or is out of reach, rows of the others are handed in as
// ever, however many of its own stand before them; these are handed in when it is back. Each row goes only once it is stored.
//
// covers: D1, inv1
func TestRelayWithASilentStream(t *testing.T) {
	for name, trouble := range map[string]func(*leaders){
		"silent": func(l *leaders) { l.silent[1] = true },
		"down":   func(l *leaders) { l.down[1] = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newLeaders(3)
				in, stopIn := running(t, log, func(c *Config) { c.StreamOf, c.Partitions, c.PartitionOf = streamName(3), 3, byDigit })
				trouble(log)
				h := newHeap()
				h.removed = func(id string) {
					if log.when(id).IsZero() {
						t.Errorf("%s is removed and was not stored", id)
					}
				}
				own := 5 * defaultRelayItems
				for i := range own {
					h.add("order", fmt.Sprintf("s%d-1", i))
				}
				relays, stop := relaying(t, in, RelayConfig{}, h, 1)
				written := map[string]time.Time{}
				for i := range 300 { // half a minute
					for _, stream := range []int{0, 2} {
						id := fmt.Sprintf("o%d-%d", i, stream)
						h.add("order", id)
						written[id] = time.Now()
					}
					h.add("order", fmt.Sprintf("s%d-1", own+i))
					<-time.After(100 * time.Millisecond)
				}
				<-time.After(time.Second)
				synctest.Wait()
				slowest, missing := time.Duration(0), 0
				for id, at := range written {
					if stored := log.when(id); stored.IsZero() {
						missing++
					} else {
						slowest = max(slowest, stored.Sub(at))
					}
				}
				if missing > 0 {
					t.Errorf("%d rows of the other streams are not stored", missing)
				}
				if most := defaultRelayInterval + relayPatience + 10*time.Millisecond; slowest > most {
					t.Errorf("a row of another stream waited for %v, want %v at most", slowest, most)
				}
				log.set(func() { clear(log.silent); clear(log.down) })
				<-time.After(relayAgainMax)
				synctest.Wait()
				stop()
				stopIn()
				if waiting, refused := h.left(); len(waiting)+len(refused) != 0 {
					t.Errorf("%d wait and %d are refused, a minute after the stream is back", len(waiting), len(refused))
				}
				if n := len(log.stored); n != 600+own+300 {
					t.Errorf("%d stored, want %d", n, 600+own+300)
				}
				if h.largest > defaultRelayItems || h.most > 2 || log.most > defaultRelayItems {
					t.Errorf("%d rows at a time, %d takes at once, %d rows that one stream had not answered", h.largest, h.most, log.most)
				}
				if s := relays[0].Stats(); s.Relayed != int64(600+own+300) || s.PutOff == 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestRelayWithASlowStream: a stream that always takes longer than others wait for it gets each of its rows once, and they
// go with its answers.
func TestRelayWithASlowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLeaders(2)
		log.slow[1] = 5 * relayPatience
		in, stopIn := running(t, log, func(c *Config) { c.StreamOf = streamName(2) })
		h := newHeap()
		for i := range 3 * defaultRelayItems {
			h.add("order", fmt.Sprintf("o%d-%d", i, i%2))
		}
		_, stop := relaying(t, in, RelayConfig{}, h, 1)
		<-time.After(2 * relayAgainMax)
		stop()
		stopIn()
		if waiting, refused := h.left(); len(waiting)+len(refused) != 0 {
			t.Errorf("%v wait, %v are refused", waiting, refused)
		}
		for id, n := range log.sent {
			if n != 1 {
				t.Errorf("%s was sent %d times", id, n)
			}
		}
	})
}

// TestRelayWithoutStreams: while no stream answers rows stay as they are, and no more are handed in; the first that is back
// has its rows at once, though another still does not answer.
func TestRelayWithoutStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLeaders(2)
		log.silent[0] = true
		in, stopIn := running(t, log, func(c *Config) { c.StreamOf = streamName(2) })
		h := newHeap("a-0")
		relays, stop := relaying(t, in, RelayConfig{}, h, 1)
		<-time.After(2 * time.Second)
		log.set(func() { log.silent[1] = true })
		h.add("order", "a-1")
		<-time.After(time.Second)
		log.set(func() { log.silent[0] = false })
		h.add("order", "b-0")
		h.add("order", "b-1")
		<-time.After(defaultPublishMax - 3*time.Second - time.Millisecond)
		synctest.Wait()
		if s, n := relays[0].Stats(), log.tries("b-0", "b-1"); s.PutOff != 0 || n != 0 {
			t.Errorf("%+v, and rows of streams that do not answer were sent %d times", s, n)
		}
		<-time.After(2*defaultRelayInterval + 10*time.Millisecond) // the stream of the first has had its time
		synctest.Wait()
		if log.when("b-0").IsZero() || !log.when("b-1").IsZero() {
			t.Errorf("b-0 is stored at %v, b-1 at %v, want b-0 alone", log.when("b-0"), log.when("b-1"))
		}
		log.set(func() { log.silent[1] = false })
		<-time.After(relayAgainMax)
		stop()
		stopIn()
		if waiting, refused := h.left(); len(waiting)+len(refused) != 0 || len(log.stored) != 4 || h.most != 2 {
			t.Errorf("%v wait, %v are refused, stored %v, %d takes at once", waiting, refused, log.stored, h.most)
		}
	})
}

// TestRelayOfAFullStream: a stream that has used up its share of the door holds up its own rows alone; when all have, rows
// stay as they are.
func TestRelayOfAFullStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		full, asked := map[int]bool{0: true, 1: true}, 0
		door := func(r Request) {
			mu.Lock()
			defer mu.Unlock()
			if full[byDigit(r.ID, 2)] {
				asked++
				r.Answer(Answer{Err: Refuse(429, CauseFull, "full").After(RetryFull)})
				return
			}
			r.Answer(Answer{})
		}
		h := newHeap("a-1", "b-1", "c-1", "a-0", "b-0")
		relays, stop := relayingInto(t, func() *Relay {
			return newRelay(RelayConfig{Items: 2}, h, door, []string{"TASKS", "TASKS_2"}, func(id string) int { return byDigit(id, 2) })
		}, 1)
		<-time.After(time.Minute)
		synctest.Wait()
		first := relays[0].Stats()
		mu.Lock()
		full[0], asked = false, 0
		mu.Unlock()
		for i := range 40 {
			h.add("order", fmt.Sprintf("d%d-1", i))
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if waiting, _ := h.left(); len(waiting) != 43 {
			t.Errorf("%v wait, want those of the full stream", waiting)
		}
		mu.Lock()
		if most := 2 * (1 + int(2*time.Second/RetryFull)); asked > most {
			t.Errorf("%d rows were handed in for the full stream in 2s, want %d at most", asked, most)
		}
		full[1] = false
		mu.Unlock()
		<-time.After(relayAgainMax)
		stop()
		if waiting, _ := h.left(); len(waiting) != 0 {
			t.Errorf("%v wait", waiting)
		}
		if first.Relayed != 0 || first.PutOff > 20 { // some, until both are found full
			t.Errorf("while both are full: %+v", first)
		}
	})
}

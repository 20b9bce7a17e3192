package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

func clock() core.Instant { return core.InstantOf(time.Now()) }

// slowLog stores after a while, on goroutines of its own.
type slowLog struct {
	after time.Duration
	err   error
	mute  bool
	mu    sync.Mutex
	seq   uint64
	packs int
	items int
}

func (l *slowLog) Publish(_ int, subs []core.Submission, done func(uint64, error)) {
	l.mu.Lock()
	l.packs++
	l.items += len(subs)
	l.mu.Unlock()
	if l.mute {
		return
	}
	time.AfterFunc(l.after, func() {
		l.mu.Lock()
		l.seq++
		seq := l.seq
		l.mu.Unlock()
		done(seq, l.err)
	})
}

// tally counts answers.
type tally struct {
	mu       sync.Mutex
	times    map[string]int
	accepted int
	causes   map[int]int
	last     time.Time
}

func newTally() *tally { return &tally{times: map[string]int{}, causes: map[int]int{}} }

func (c *tally) request(id string) Request {
	return Request{Form: submit.Form{Type: "order", ID: id, Input: []byte(`{}`)}, Answer: func(a Answer) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.times[id]++
		c.last = time.Now()
		if a.Err == nil {
			c.accepted++
		} else {
			c.causes[a.Err.ErrCode]++
		}
	}}
}

func (c *tally) once(t *testing.T, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.times) != n {
		t.Errorf("%d requests answered, want %d", len(c.times), n)
	}
	for id, times := range c.times {
		if times != 1 {
			t.Errorf("%s was answered %d times", id, times)
		}
	}
}

// running starts the role and returns what ends it and waits for its end.
func running(t *testing.T, log Log, change func(*Config)) (in *Ingest, stop func()) {
	t.Helper()
	cfg := Config{StreamOf: oneStream, Partitions: 16, PartitionOf: func(id string, n int) int { return int(id[len(id)-1]) % n }}
	if change != nil {
		change(&cfg)
	}
	door, err := NewDoor(cfg, plans("order"), log)
	if err != nil {
		t.Fatal(err)
	}
	in = New(door, clock)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	role := in
	go func() { ended <- role.Run(ctx) }()
	return role, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestRunAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTally()
		in, stop := running(t, &slowLog{after: 2 * time.Millisecond}, nil)
		began := time.Now()
		in.Submit(c.request("x1"))
		<-time.After(3 * time.Millisecond)
		synctest.Wait()
		c.once(t, 1)
		if d := c.last.Sub(began); d != 2*time.Millisecond {
			t.Errorf("answered after %v, want the stream's 2ms: a quiet door does not wait", d)
		}
		stop()
		c.once(t, 1)
	})
}

// 50 ms of a flood of 50,000/s: packs are large, and no request waits longer
// than the window and the stream together.
//
// covers: E14, I4
func TestRunInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTally()
		log := &slowLog{after: 3 * time.Millisecond}
		in, stop := running(t, log, nil)
		n := 0
		for range 500 {
			for range 5 {
				in.Submit(c.request(fmt.Sprintf("f%d", n)))
				n++
			}
			<-time.After(100 * time.Microsecond)
		}
		sent := time.Now()
		<-time.After(40 * time.Millisecond)
		synctest.Wait()
		c.once(t, n)
		if most := defaultWindowMax + 2*log.after; c.last.Sub(sent) > most {
			t.Errorf("the last answer came %v after the last request, want at most %v", c.last.Sub(sent), most)
		}
		stop()
		// Ten partitions (the last digit), 50 ms: 60 windows and a little.
		if log.packs > 100 || log.items != n {
			t.Errorf("%d packs for %d items", log.packs, log.items)
		}
	})
}

// covers: inv1
func TestRunDrains(t *testing.T) {
	tests := []struct {
		name string
		log  *slowLog
		want int // cause; 0: accepted
		took time.Duration
	}{
		{"a stream that stores", &slowLog{after: time.Second}, 0, time.Second},
		{"a stream that fails", &slowLog{after: time.Second, err: errors.New("lost")}, causeOutcome, time.Second},
		{"a stream that is silent", &slowLog{mute: true}, causeOutcome, defaultPublishMax},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTally()
				in, stop := running(t, tt.log, nil)
				const n = 1000
				for i := range n {
					in.Submit(c.request(fmt.Sprintf("d%d", i)))
				}
				began := time.Now()
				stop()
				c.once(t, n)
				if d := time.Since(began); d != tt.took {
					t.Errorf("drained in %v, want %v", d, tt.took)
				}
				if got := c.causes[tt.want] + c.accepted; got != n || (tt.want == 0) != (c.accepted == n) {
					t.Errorf("accepted %d, causes %v", c.accepted, c.causes)
				}
				in.Submit(c.request("late"))
				c.once(t, n+1)
				if c.causes[CauseStopping] != 1 {
					t.Errorf("causes %v: after the end requests are refused", c.causes)
				}
				if st := in.Stats(); st.Items != 0 || st.Bytes != 0 {
					t.Errorf("%d items, %d bytes left", st.Items, st.Bytes)
				}
			})
		})
	}
}

// Requests that arrive from many goroutines while the role ends are all
// answered. Real time, so that the race detector sees real interleavings.
func TestStopUnderLoad(t *testing.T) {
	for range 20 {
		c := newTally()
		in, stop := running(t, &slowLog{after: 100 * time.Microsecond}, func(cfg *Config) { cfg.ItemsMax = 200 })
		var wg sync.WaitGroup
		const writers, each = 4, 300
		half := make(chan struct{}, writers)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					in.Submit(c.request(fmt.Sprintf("w%d-%d", w, i)))
					if i == each/2 {
						half <- struct{}{}
					}
				}
			})
		}
		<-half
		stop()
		wg.Wait()
		c.once(t, writers*each)
		if st := in.Stats(); st.Items != 0 || st.Bytes != 0 {
			t.Fatalf("%d items, %d bytes left", st.Items, st.Bytes)
		}
	}
}

// A request that got its room just before the end, and came to the inbox just
// after, is refused, and the role does not wait for it for ever.
func TestStopBetweenRoomAndInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTally()
		in, stop := running(t, &slowLog{}, nil)
		req := c.request("x1")
		if !in.door.Admit(in.now(), &req) {
			t.Fatal("no room")
		}
		entered := make(chan struct{})
		go func() {
			<-time.After(time.Second) // Run has closed the inbox and waits
			in.enter(req)
			close(entered)
		}()
		stop()
		<-entered
		c.once(t, 1)
		if c.causes[CauseStopping] != 1 {
			t.Errorf("causes %v", c.causes)
		}
	})
}

func TestRunTwice(t *testing.T) {
	in, stop := running(t, &slowLog{}, nil)
	stop()
	if err := in.Run(t.Context()); !errors.Is(err, errRunning) {
		t.Errorf("error %v, want errRunning", err)
	}
}

package scheduler_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// cluster is what the nodes of a test share: the store, the streams, the list of
// the living, and agents that answer after a while. It lives in a synctest
// bubble.
type cluster struct {
	t     *testing.T
	store *spyStore
	logs  *slog.Logger

	mu               sync.Mutex
	live             []string
	watchers         map[*watcher]bool
	evidence, former map[int]core.Evidence
	hears            []func(core.Evidence)
	ears             map[int][]*scheduler.Inbox // who listens to a partition's replies
	stream           map[int][]scheduler.TaskMail
	last             uint64
	acked            map[uint64]bool
	lost             map[int]func(error)
	answer           time.Duration // how long an agent works; negative: for ever
	code             int           // what it answers
	failing          int           // so many looks at the stream fail
	absent           string        // an agent that no one is
	deaf             bool          // what owners record is not heard
	bus
}

type watcher struct{ changed chan struct{} }

// spyStore notes what the owner of a partition was when it was taken over.
type spyStore struct {
	*sim.MemStore
	mu    sync.Mutex
	taken []string // "" for each takeover of a released partition
	// How long a commit takes, besides one that only moves positions, that of partition 0
	// too, a takeover, and forgetting in an odd partition, in nanoseconds.
	slow, positions, takes, forgets atomic.Int64
	// reads is how long the rows that a scheduler compares with what it holds take to come once they are read.
	reads atomic.Int64
	// broken makes each commit fail after it was done.
	broken atomic.Bool
}

// takes waits for so many nanoseconds; false: ctx ended before. Without any to wait for it
// has no timer: two that are due at once, in goroutines of one bubble, crash the race
// detector of Go 1.26.
func takes(ctx context.Context, nanoseconds *atomic.Int64) bool {
	d := time.Duration(nanoseconds.Load())
	if d == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Commit takes its time, and is cut off by the end of ctx.
func (s *spyStore) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	if !takes(ctx, &s.slow) {
		return core.CommitResult{}, ctx.Err()
	}
	ofFirst := func(p core.PartitionWrite) bool { return p.Partition == 0 }
	if len(b.Writes) == 0 && slices.ContainsFunc(b.Partitions, ofFirst) && !takes(ctx, &s.positions) {
		return core.CommitResult{}, ctx.Err()
	}
	res, err := s.MemStore.Commit(ctx, b)
	if s.broken.Load() {
		return core.CommitResult{}, errCut
	}
	return res, err
}

func (s *spyStore) CursorsOf(ctx context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	states, err := s.MemStore.CursorsOf(ctx, partitions, owner)
	if owner != "" {
		takes(ctx, &s.reads)
	}
	return states, err
}

func (s *spyStore) TakeOver(ctx context.Context, p int, c core.Claim) (core.PartitionState, error) {
	takes(context.Background(), &s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, s.Partition(p).Owner)
	return s.MemStore.TakeOver(ctx, p, c)
}

func (s *spyStore) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	if partition%2 == 1 {
		takes(context.Background(), &s.forgets)
	}
	return s.MemStore.Purge(ctx, partition, epoch, detail, row, limit)
}

// takenFrom returns the owners before, since the last call.
func (s *spyStore) takenFrom() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.taken
	s.taken = nil
	return taken
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		t: t, store: &spyStore{MemStore: sim.NewMemStore()}, logs: slog.New(slog.DiscardHandler),
		evidence: map[int]core.Evidence{}, former: map[int]core.Evidence{}, watchers: map[*watcher]bool{}, ears: map[int][]*scheduler.Inbox{}, stream: map[int][]scheduler.TaskMail{},
		acked: map[uint64]bool{}, lost: map[int]func(error){}, answer: 100 * time.Millisecond,
	}
	c.store.AddPlan(orderPlan("order", 1, "a", "b"))
	return c
}

// node is one running scheduler.
type node struct {
	name string
	s    *scheduler.Scheduler
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func (c *cluster) run(name string, change func(*scheduler.RunConfig)) *node {
	cfg := scheduler.RunConfig{
		Config: scheduler.Config{Node: name}, Partitions: 8,
		Rand: locked(chance(name)),
	}
	if change != nil {
		change(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &node{name: name, s: scheduler.New(cfg, c.store, c, c, c, c.logs), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(n.done)
		n.err = n.s.Run(ctx)
	}()
	c.t.Cleanup(func() { // a test that has failed leaves no goroutine either
		stop()
		<-n.done
	})
	return n
}

// end stops a node and waits for it.
func (c *cluster) end(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		n.stop()
	}
	for _, n := range nodes {
		if <-n.done; n.err != nil {
			c.t.Errorf("%s: %v", n.name, n.err)
		}
	}
}

func locked(f func() float64) func() float64 {
	var mu sync.Mutex
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *cluster) setLive(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = names
	for w := range c.watchers {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// Watch implements scheduler.Members.
func (c *cluster) Watch(ctx context.Context, live func([]string)) error {
	w := &watcher{changed: make(chan struct{}, 1)}
	c.mu.Lock()
	c.watchers[w] = true
	c.mu.Unlock()
	for {
		c.mu.Lock()
		names := slices.Clone(c.live)
		c.mu.Unlock()
		live(names)
		select {
		case <-w.changed:
		case <-ctx.Done():
			c.mu.Lock()
			delete(c.watchers, w)
			c.mu.Unlock()
			return ctx.Err()
		}
	}
}

// submit puts a message on the partition's stream.
func (c *cluster) submit(p int, subs ...core.Submission) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	pos := c.last
	c.stream[p] = append(c.stream[p], scheduler.TaskMail{Partition: p, Pos: pos, Submissions: subs, Ack: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.acked[pos] = true
	}})
	return pos
}

// Ground implements scheduler.Wires.
func (c *cluster) Ground(_ context.Context, p int) (scheduler.Ground, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing > 0 {
		c.failing--
		return scheduler.Ground{}, errCut
	}
	g := scheduler.Ground{Stream: "stream-1", Evidence: c.evidence[p], Former: c.former[p]}
	if n := len(c.stream[p]); n > 0 {
		g.End = c.stream[p][n-1].Pos
	}
	return g, nil
}

// Record implements scheduler.Bus.
func (c *cluster) Record(all []core.Evidence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range all {
		if e.Former {
			c.former[e.Partition] = e
		} else {
			c.evidence[e.Partition] = e
		}
		for _, heard := range c.hears {
			if !c.deaf {
				heard(e)
			}
		}
	}
}

// Evidence implements scheduler.Wires.
func (c *cluster) Evidence(ctx context.Context, heard func(core.Evidence)) error {
	c.mu.Lock()
	c.hears = append(c.hears, heard)
	c.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Listen implements scheduler.Wires.
func (c *cluster) Listen(p int, in *scheduler.Inbox) (func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ears[p] = append(c.ears[p], in)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.ears[p], in)
		c.ears[p] = slices.Delete(c.ears[p], i, i+1)
	}, nil
}

// Read implements scheduler.Wires.
func (c *cluster) Read(_ context.Context, p int, from scheduler.Adopted, in *scheduler.Inbox, lost func(error)) (func(), error) {
	c.mu.Lock()
	c.lost[p] = lost
	c.mu.Unlock()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for next := from.Cursor; ; {
			for _, m := range c.after(p, next) {
				if !in.Tasks(m) {
					return
				}
				next = m.Pos
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }, nil
}

func (c *cluster) after(p int, pos uint64) []scheduler.TaskMail {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.stream[p], func(m scheduler.TaskMail) bool { return m.Pos > pos })
	if i < 0 {
		return nil
	}
	return slices.Clone(c.stream[p][i:])
}

// Send implements scheduler.Bus: agents answer all that listen by then.
func (c *cluster) Send(cmds []core.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bus.Send(cmds)
	if c.answer < 0 {
		return
	}
	for _, cmd := range cmds {
		reply := core.Reply{Partition: cmd.Partition, Number: cmd.Number, Seq: cmd.Seq, Token: core.TokenOf(cmd.Copy), Code: c.code}
		if cmd.Agent == c.absent {
			time.AfterFunc(time.Millisecond, func() {
				c.mu.Lock()
				ears := slices.Clone(c.ears[reply.Partition])
				c.mu.Unlock()
				for _, in := range ears {
					in.Unserved(reply)
				}
			})
			continue
		}
		time.AfterFunc(c.answer, func() {
			c.mu.Lock()
			ears := slices.Clone(c.ears[reply.Partition])
			c.mu.Unlock()
			for _, in := range ears {
				in.Reply(reply)
			}
		})
	}
}

// Publish implements scheduler.Bus: the event stream takes its time.
func (c *cluster) Publish(_ []core.Ending, done func(error)) {
	time.AfterFunc(time.Millisecond, func() { done(nil) })
}

// Notify implements scheduler.Bus.
func (c *cluster) Notify(string, core.Status) {}

// Live implements scheduler.Bus.
func (c *cluster) Live(core.Status) {}

// want checks the state of tasks.
func (c *cluster) want(state core.State, p int, ids ...string) {
	c.t.Helper()
	want(c.t, c.store.MemStore, state, p, ids...)
}

func want(t *testing.T, store *sim.MemStore, state core.State, p int, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if task := store.Task(p, id); task == nil || task.State != state {
			t.Fatalf("task %s is not %s: %s", id, state, store.History(p, id))
		}
	}
}

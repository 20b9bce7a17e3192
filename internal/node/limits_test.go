package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// metered is two nodes on a NATS server and PostgreSQL, and an agent that counts what is at work at a time. A command that a
// node sends again, because it has taken a partition over, is the same one.
type metered struct {
	t      testing.TB
	nats   string
	db     string
	nodes  map[string]*Node
	stops  map[string]func() // and waits until the node has ended
	client *duly.Client
	plan   *duly.Plan[int]
	ids    []string
	takes  atomic.Int64 // time.Duration of a call
	fails  atomic.Bool  // every call
	change func(*config.Config)

	mu      sync.Mutex
	running map[string]int // calls, by key
	most    int            // keys at a time
	calls   []time.Time
	inputs  map[int]int       // calls at a time, by input
	mostOf  map[int]int       // the most of them
	order   []int             // inputs of calls as they begin
	over    map[int]time.Time // when the last call of an input ended
}

func newMetered(t testing.TB, limits ...operate.SetLimit) *metered {
	t.Helper()
	return newMeteredBy(t, func(*config.Config) {}, limits...)
}

// newMeteredBy is newMetered with nodes of another configuration. Limits are set before the nodes start: one that is set later
// holds from when each node has heard of it.
func newMeteredBy(t testing.TB, change func(*config.Config), limits ...operate.SetLimit) *metered {
	t.Helper()
	b := &metered{t: t, change: change, db: pgtestdb.Installation(t), nats: startNATS(t).ClientURL(), running: map[string]int{}, inputs: map[int]int{}, mostOf: map[int]int{}, over: map[int]time.Time{}, nodes: map[string]*Node{}, stops: map[string]func(){}}
	if err := Migrate(t.Context(), b.db); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for name := range b.stops {
			b.stop(name)
		}
	})
	store, err := dialects.Open(t.Context(), b.db, schema.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range limits {
		b.set(&operate.Limiting{Store: store, Desk: operate.NewDesk(store, time.Now, slog.New(slog.DiscardHandler)), Plans: store.Plans, Announce: func() error { return nil }, Now: time.Now}, l)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	b.start("n1", false)
	b.start("n2", false)
	nc, err := nats.Connect(b.nats)
	if err != nil {
		t.Fatal(err)
	}
	if b.client, err = duly.NewClient(nc); err != nil {
		t.Fatal(err)
	}
	pay := duly.NewCheck[int, int]("pay", "pay", duly.Attempts(1000), duly.CompleteBy(5*time.Second))
	agent, err := duly.NewAgent(nc)
	if err == nil {
		err = pay.Serve(agent, b.work)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		nc.Close()
	})
	b.plan = duly.NewPlan("order", 1, pay).With(duly.TaskCompleteBy(time.Hour))
	soon(t, "the plan is taken", func() bool { return b.plan.Apply(t.Context(), b.client) == nil })
	return b
}

// work is a call of the agent.
func (b *metered) work(ctx context.Context, call duly.Call[int]) (int, error) {
	b.mu.Lock()
	b.calls = append(b.calls, time.Now())
	b.running[call.Key]++
	b.most = max(b.most, len(b.running))
	b.order = append(b.order, call.Input)
	b.inputs[call.Input]++
	b.mostOf[call.Input] = max(b.mostOf[call.Input], b.inputs[call.Input])
	b.mu.Unlock()
	if takes := time.Duration(b.takes.Load()); takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	b.leave(&call)
	if b.fails.Load() {
		return 0, errors.New("out of order")
	}
	return 1, nil
}

// leave notes that a call is over.
func (b *metered) leave(call *duly.Call[int]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inputs[call.Input]--
	b.over[call.Input] = time.Now()
	if b.running[call.Key]--; b.running[call.Key] == 0 {
		delete(b.running, call.Key)
	}
}

// seen is the most that was at work at a time, and when each call began.
func (b *metered) seen() (most int, calls []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most, slices.Clone(b.calls)
}

// start starts a node; one that is killable ends, when it is stopped, as if its process were killed.
func (b *metered) start(name string, killable bool) {
	b.t.Helper()
	cfg := good()
	cfg.NodeName, cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = name, b.nats, b.db, wire.DefaultNamespace
	cfg.Partitions, cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval = 8, 10_000, 10_000, 2*time.Second, 100*time.Millisecond
	b.change(&cfg)
	if killable {
		cfg.Roles = []string{config.RoleScheduler}
	}
	n, err := Open(b.t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		if killable {
			ended <- errors.Join(n.RunRole(ctx, config.RoleScheduler, true), n.Close())
			return
		}
		ended <- errors.Join(n.Run(ctx), n.Close())
	}()
	b.nodes[name] = n
	b.stops[name] = func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
	soon(b.t, "node "+name+" owns partitions", func() bool { own := n.owning(); return own != nil && own.Owned() > 0 })
}

func (b *metered) stop(name string) {
	b.stops[name]()
	delete(b.stops, name)
}

func (b *metered) flow() api.Ports {
	return b.nodes["n1"].ports()
}

// set sets a limit of the agent.
func (b *metered) set(by operate.LimitControl, l operate.SetLimit) {
	b.t.Helper()
	l.Agent, l.Reason, l.EvenIfUnknown = "pay", "it is slow", true
	if _, err := by.SetLimit(b.t.Context(), operator, l); err != nil {
		b.t.Fatal(err)
	}
}

// granted is how many places of the limit a node has, in grants that end at a time or before.
func (b *metered) granted(name string) (places int, until core.Instant) {
	b.t.Helper()
	all, err := b.nodes["n1"].store.(operate.LimitStore).Grants(b.t.Context(), "pay")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, g := range all {
		if strings.HasPrefix(g.Holder, name+"/") && g.Places > 0 {
			places, until = places+g.Places, max(until, g.Until)
		}
	}
	return places, until
}

// submit submits as many tasks more, of all partitions.
func (b *metered) submit(n int) { b.t.Helper(); b.submitOf(n, func(int) int { return 1 }) }

// submitOf does so with inputs and options.
func (b *metered) submitOf(n int, input func(i int) int, options ...duly.SubmitOption) {
	b.t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		id := "t" + strconv.Itoa(len(b.ids))
		b.ids = append(b.ids, id)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if _, err := b.plan.Submit(b.t.Context(), b.client, id, input(i), options...); err != nil {
				b.t.Error(err)
			}
		})
	}
	wg.Wait()
}

// done waits until all tasks are processed.
func (b *metered) done() {
	b.t.Helper()
	soon(b.t, "all tasks are processed", func() bool {
		counts, err := b.nodes["n1"].store.Counts(b.t.Context())
		return err == nil && len(counts) == 1 && counts[0].State == core.StateProcessed && counts[0].Tasks == int64(len(b.ids))
	})
}

// TestLimitOverNodes: of an agent with a limit as many commands as it says are at work, over two nodes, and never one more. A
// node that stops in order gives back at once what no command uses; the places of one that is killed are no one's until its
// grants end, and then another's. When the limit is removed more are at work.
func TestLimitOverNodes(t *testing.T) {
	const most = 5
	b := newMetered(t, operate.SetLimit{Concurrent: most})
	b.takes.Store(int64(100 * time.Millisecond))
	b.submit(400)
	until(t, "the agent has as many calls as it may have", func() bool { n, _ := b.seen(); return n >= most })
	until(t, "both nodes have places", func() bool { one, _ := b.granted("n1"); two, _ := b.granted("n2"); return one > 0 && two > 0 })
	all, err := b.flow().Limits.Limits(t.Context())
	if err != nil || len(all) != 1 || all[0].Concurrent != most || all[0].Granted > most || all[0].Granted == 0 || all[0].Wanted < most || all[0].Holders < 2 || all[0].By != "olga" {
		t.Errorf("%+v, %v", all, err)
	}

	p, err := b.flow().Pauses.SetPause(t.Context(), operator, operate.Pause{Agent: "pay", Reason: "no command is out then"})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "no command is out", func() bool {
		b.mu.Lock()
		calls := len(b.calls)
		b.mu.Unlock()
		select {
		case <-t.Context().Done():
		case <-time.After(500 * time.Millisecond):
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.calls) == calls && len(b.running) == 0
	})
	if places, _ := b.granted("n2"); places == 0 {
		t.Error("the node has no place any more, though tasks wait")
	}
	b.stop("n2")
	if err := b.flow().Pauses.LiftPause(t.Context(), operator, p.ID, "on with it"); err != nil {
		t.Fatal(err)
	}
	until(t, "the other node has all places", func() bool { n, _ := b.granted("n1"); return n == most })

	b.start("n3", true)
	b.submit(400)
	b.takes.Store(int64(time.Second)) // so that it is killed while its calls are at work
	until(t, "the new node has places", func() bool { n, _ := b.granted("n3"); return n > 1 })
	b.stop("n3")
	places, end := b.granted("n3")
	if places == 0 {
		t.Error("a node that was killed has given its places back")
	}
	early, kept := false, false // looked at before the grants' end, and still the other's then
	until(t, "the node that is left has all places, when the grants of the other have ended", func() bool {
		n, _ := b.granted("n1")
		over := !time.Now().Before(end.Time())
		early, kept = early || !over, kept || !over && n <= most-places
		return over && n == most
	})
	if early && !kept {
		t.Error("the places of the killed node were another's at once")
	}
	if n, _ := b.seen(); n != most {
		t.Errorf("%d commands were at work at a time, the limit is %d", n, most)
	}
	if err := b.flow().Limits.RemoveLimit(t.Context(), operator, "pay", "it is fast"); err != nil {
		t.Fatal(err)
	}
	until(t, "more are at work without the limit", func() bool { n, _ := b.seen(); return n > 2*most })
	b.takes.Store(0)
	b.done()
}

// TestLimitOfOne: with one place for two nodes the tasks of all partitions are done, one at a time.
func TestLimitOfOne(t *testing.T) {
	b := newMetered(t, operate.SetLimit{Concurrent: 1})
	b.takes.Store(int64(5 * time.Millisecond))
	b.submit(80)
	partitions := map[int]bool{}
	for _, id := range b.ids {
		partitions[wire.PartitionOf(id, 8)] = true
	}
	b.done()
	if n, calls := b.seen(); n != 1 || len(calls) != len(b.ids) || len(partitions) != 8 {
		t.Errorf("%d at a time; %d calls for %d tasks of %d partitions", n, len(calls), len(b.ids), len(partitions))
	}
}

// TestLimitOfKeys: of each key no more commands are at work than its bound, over two nodes; one with much to do uses its places,
// and keeps no other from going on.
func TestLimitOfKeys(t *testing.T) {
	const busy, others, each = 300, 30, 5
	b := newMetered(t, operate.SetLimit{Key: "input", KeyConcurrent: 2})
	b.takes.Store(int64(time.Second)) // so that few are done before all are there
	b.submitOf(busy, func(int) int { return 0 })
	b.submitOf(others*each, func(i int) int { return 1 + i%others })
	b.takes.Store(int64(20 * time.Millisecond))
	var seen []operate.Limit
	until(t, "operators see the busy key", func() bool {
		all, err := b.flow().Limits.Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen = all
		return len(all) == 1 && len(all[0].BusiestKeys) > 0 && all[0].BusiestKeys[0].Key == "0" && all[0].BusiestKeys[0].Places == 2
	})
	if n := seen[0].Keys; n < 1 || n > 1+others {
		t.Errorf("%d keys are in use", n)
	}
	b.done()
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, n := range b.mostOf {
		if n > 2 {
			t.Errorf("%d calls of key %d were at work at a time", n, key)
		}
	}
	if b.mostOf[0] != 2 {
		t.Errorf("the busy key had %d at a time, want 2", b.mostOf[0])
	}
	last, before := 0, 0 // calls of the busy key before the last one of another
	for i, key := range b.order {
		if key != 0 {
			last = i
		}
	}
	for _, key := range b.order[:last] {
		if key == 0 {
			before++
		}
	}
	if before > busy*9/10 { // all of them, if the others waited for the busy key; how many, by how soon places come back
		t.Errorf("%d of %d calls of the busy key began before the last of the others", before, busy)
	}
	until(t, "no key that is not in use has a grant", func() bool {
		all, err := b.flow().Limits.Limits(t.Context())
		return err == nil && all[0].Keys == 0
	})
}

// TestLimitOfRate: calls begin as often as the rate of a limit lets them, over two nodes, and no more often but for its burst.
func TestLimitOfRate(t *testing.T) {
	const rate, tasks = 20, 100
	const burst = rate/10 + 8 // a tenth of a second, and two for each committer
	b := newMetered(t, operate.SetLimit{Rate: rate})
	b.submit(tasks)
	b.done()
	_, calls := b.seen()
	slices.SortFunc(calls, time.Time.Compare)
	for i := range calls {
		in := 0
		for _, at := range calls[i:] {
			if at.Sub(calls[i]) < time.Second {
				in++
			}
		}
		if in > rate+burst {
			t.Errorf("%d calls in a second, the rate is %d", in, rate)
		}
	}
	if len(calls) != tasks {
		t.Errorf("%d calls for %d tasks", len(calls), tasks)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// cluster is NATS and PostgreSQL, for nodes.
type cluster struct {
	t     *testing.T
	nats  string
	db    string
	store schema.Store
	nc    *nats.Conn
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, db: pgtestdb.Installation(t)}
	server := natstest.Start(t, natsserver.Options{})
	c.nats = server.ClientURL()
	if code, out, errs := command(t, "", "migrate", "--database-url", c.db); code != 0 || !strings.Contains(out, "up to date") {
		t.Fatalf("migrate: %d %s %s", code, out, errs)
	}
	var err error
	if c.store, err = dialects.Open(t.Context(), c.db, schema.Options{MaxConns: 2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if c.nc, err = nats.Connect(c.nats); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.nc.Close)
	return c
}

// args are those of a node.
func (c *cluster) args(name, roles string) []string {
	return []string{"serve", "--roles", roles, "--node-name", name, "--nats-url", c.nats, "--database-url", c.db,
		"--http-addr", "127.0.0.1:0", "--partitions", "8", "--lease", "1s", "--scan-interval", "100ms", "--drain", "5s"}
}

// serve starts a node.
func (c *cluster) serve(name, roles string) *child {
	c.t.Helper()
	return start(c.t, c.args(name, roles)...)
}

// delivery is the drone application in this process: plan, agents, books.
type delivery struct {
	flow     *drone.Workflow
	services *drone.Services
	client   *duly.Client
	requests *drone.Generator

	mu       sync.Mutex
	accepted []string
}

func (c *cluster) drone(plan drone.PlanOptions, faults drone.Faults) *delivery {
	c.t.Helper()
	d := &delivery{flow: drone.NewWorkflow(plan), requests: drone.NewGenerator(1)}
	var err error
	if d.services, err = drone.NewServices(drone.ServiceOptions{Seed: 1, Scale: 0.2, Faults: faults}); err != nil {
		c.t.Fatal(err)
	}
	nc, err := nats.Connect(c.nats)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	agent, err := drone.NewAgent(nc, d.flow, d.services, duly.Running(8192), duly.Waiting(1<<16))
	if err != nil {
		c.t.Fatal(err)
	}
	background(c.t, agent.Run)
	if d.client, err = duly.NewClient(c.nc); err != nil {
		c.t.Fatal(err)
	}
	if err := d.flow.Plan.Apply(c.t.Context(), d.client); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// submit hands deliveries in, some at a time, and calls each after every one.
func (d *delivery) submit(t *testing.T, from, to int, each func(accepted int)) {
	t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(from))
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
				r := d.requests.Request(i)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := d.flow.Plan.Submit(ctx, d.client, r.DeliveryID, r)
				cancel()
				if err != nil {
					t.Errorf("submit: %v", err)
					return
				}
				d.mu.Lock()
				d.accepted = append(d.accepted, r.DeliveryID)
				n := len(d.accepted)
				d.mu.Unlock()
				each(n)
			}
		})
	}
	wg.Wait()
}

func (c *cluster) ended() int {
	c.t.Helper()
	counts, err := c.store.Counts(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	n := int64(0)
	for _, count := range counts {
		if count.State.Ended() {
			n += count.Tasks
		}
	}
	return int(n)
}

// clean waits for every accepted delivery to end and checks the books.
func (c *cluster) clean(d *delivery) drone.Report {
	c.t.Helper()
	r := c.books(d)
	if !r.Clean() || r.Accepted != len(d.accepted) || r.Processed+r.Undone != r.Accepted {
		c.t.Errorf("the books are not clean: %+v", r)
	}
	return r
}

// books waits until all has ended, and compares the books of the services with the tasks.
func (c *cluster) books(d *delivery) drone.Report {
	c.t.Helper()
	until(c.t, "every task ends", func() bool { return c.ended() >= len(d.accepted) })
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := d.services.Settle(ctx); err != nil {
		c.t.Fatal(err)
	}
	audit, err := c.store.Books(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	m := drone.OutcomesOf(audit.States)
	for _, twice := range audit.DoneTwice {
		m.AddDone(twice.Task, drone.DoneRows{Step: twice.Step, Round: twice.Round, Rows: twice.Rows})
	}
	compared, err := dev.CompareBooks(ctx, c.store, 8, d.services.Books().ByAgent())
	if err != nil {
		c.t.Fatal(err)
	}
	r := d.services.Books().CheckBeside(d.accepted, m)
	addGhosts(&r, compared)
	return r
}

// owners is how many partitions each node owns.
func (c *cluster) owners() map[string]int {
	c.t.Helper()
	all, err := c.store.Cursors(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	n := map[string]int{}
	for i := range all {
		n[all[i].Owner]++
	}
	return n
}

// TestKilledSchedulerLosesNothing: kill -9 of the only scheduler in the middle
// of the load, then another one.
//
// covers: E3, S38, S42, I2, I19, T9
func TestKilledSchedulerLosesNothing(t *testing.T) {
	t.Parallel()
	const tasks = 2000
	c := newCluster(t)
	doors := c.serve("doors", "ingest,supervisor")
	first := spawn(t, c.args("first", "scheduler")...)
	doors.ready()
	first.ready()
	d := c.drone(drone.QuickPlan(), drone.FaultsSome)
	var once sync.Once
	var atKill int
	d.submit(t, 0, tasks, func(n int) {
		if n >= tasks/2 {
			once.Do(func() { first.kill(); atKill = c.ended() })
		}
	})
	if len(d.accepted) != tasks {
		t.Fatalf("%d accepted, want %d: the doors take tasks without a scheduler too", len(d.accepted), tasks)
	}
	if now := c.ended(); now >= tasks {
		t.Fatalf("%d tasks ended without a scheduler: the kill was not in the middle", now)
	}
	c.serve("second", "scheduler").ready()
	r := c.clean(d)
	t.Logf("%d had ended at the kill; %+v", atKill, r)
}

// TestWithoutSupervisorNothingTimesOut: time-outs are recovered by the
// supervisor and by nothing else.
//
// covers: E6, S11, inv11
func TestWithoutSupervisorNothingTimesOut(t *testing.T) {
	t.Parallel()
	const completeBy = 3 * time.Second // within which a slow machine commits and sends
	c := newCluster(t)
	c.serve("node", "ingest,scheduler").ready()
	step := duly.NewCheck[int, int]("mute", "mute.never", duly.CompleteBy(completeBy), duly.Attempts(1))
	plan := duly.NewPlan("mute", 1, step).With(duly.Grace(50 * time.Millisecond))
	client, err := duly.NewClient(c.nc)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan time.Time, 16)
	if _, err := c.nc.QueueSubscribe("duly.do.mute.never", "q", func(*nats.Msg) { heard <- time.Now() }); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.nc.Flush(), plan.Apply(t.Context(), client)); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Submit(t.Context(), client, "m1", 1); err != nil {
		t.Fatal(err)
	}
	var called time.Time
	select {
	case called = <-heard:
	case <-time.After(patience):
		t.Fatal("the agent was not called")
	}
	until(t, "three times its complete-by", func() bool {
		if n := c.ended(); n != 0 {
			t.Fatal("it ended without a supervisor")
		}
		return time.Since(called) > 3*completeBy
	})
	audit, err := c.store.Books(t.Context())
	if err != nil || audit.States["m1"] != "processing" {
		t.Fatalf("%v %v, want processing", audit.States, err)
	}
	c.serve("late", "supervisor").ready()
	until(t, "it ends", func() bool { return c.ended() == 1 })
	if audit, err = c.store.Books(t.Context()); err != nil || audit.States["m1"] != "undone" {
		t.Errorf("%v %v, want undone", audit.States, err)
	}
}

// TestRestoredStreamThatHasGrown: the task stream comes back without what it held, under its
// own identity, while no node lives, and has grown past every cursor when one starts. What
// was accepted runs.
//
// covers: A6, inv1
func TestRestoredStreamThatHasGrown(t *testing.T) {
	t.Parallel()
	const before, after = 60, 100
	c := newCluster(t)
	first := c.serve("first", "ingest,scheduler,supervisor")
	first.ready()
	plan := duly.NewPlan("count", 1, duly.NewCheck[int, int]("one", "count.one"))
	client, err := duly.NewClient(c.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.nc.QueueSubscribe("duly.do.count.one", "q", func(m *nats.Msg) { _ = m.Respond([]byte("1")) }); err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	js, err := c.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	publish := func(name string, n int) {
		t.Helper()
		for i := range n {
			if _, err := js.Publish(fmt.Sprintf("duly.in.count.%s-%d", name, i), []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish("before", before)
	until(t, "every task ends", func() bool { return c.ended() == before })
	if code := first.term(); code != 0 { // and every cursor is committed
		t.Fatalf("exit %d", code)
	}
	info, err := js.StreamInfo("DULY_TASKS")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream("DULY_TASKS"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&info.Config); err != nil {
		t.Fatal(err)
	}
	publish("after", after)
	second := c.serve("second", "ingest,scheduler,supervisor")
	second.ready()
	until(t, "every task ends", func() bool { return c.ended() == before+after })
	if want := "ALERT: the task stream is read again from its beginning"; !strings.Contains(second.log(), want) {
		t.Errorf("the log does not say %q:\n%s", want, second.log())
	}
}

// TestTwoNodesShare: two schedulers share the partitions; one that is told to
// stop hands its own over, and nothing is lost.
//
// covers: E12, S22, I12
func TestTwoNodesShare(t *testing.T) {
	t.Parallel()
	const tasks, partitions = 600, 8
	c := newCluster(t)
	doors, one, two := c.serve("doors", "ingest,supervisor"), c.serve("one", "scheduler"), c.serve("two", "scheduler")
	for _, p := range []*child{doors, one, two} {
		p.ready()
	}
	until(t, "both own some", func() bool { n := c.owners(); return n["one"] > 0 && n["two"] > 0 && n["one"]+n["two"] == partitions })
	d := c.drone(drone.QuickPlan(), drone.FaultsNone)
	stopped := make(chan int, 1)
	var once sync.Once
	d.submit(t, 0, tasks, func(n int) {
		if n >= tasks/2 {
			once.Do(func() { stopped <- one.term() })
		}
	})
	if code := <-stopped; code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
	until(t, "the other owns all", func() bool { return c.owners()["two"] == partitions })
	if r := c.clean(d); r.Processed != tasks {
		t.Errorf("%d processed, want %d", r.Processed, tasks)
	}
	if log := one.log(); strings.Contains(log, "ERROR") || strings.Contains(log, "panic") {
		t.Errorf("the node that stopped complained:\n%s", log)
	}
}

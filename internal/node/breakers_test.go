package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/wire"
)

// broken is two nodes on a NATS server and PostgreSQL, and an agent that works or does not.
type broken struct {
	t       *testing.T
	nats    string
	db      string
	nodes   []*Node
	stop    func() // all nodes
	client  *duly.Client
	plan    *duly.Plan[int]
	calls   atomic.Int64 // that the agent was asked
	healthy atomic.Bool
}

func newBroken(t *testing.T) *broken {
	t.Helper()
	b := &broken{t: t, nats: startNATS(t).ClientURL(), db: pgtestdb.Installation(t)}
	if err := Migrate(t.Context(), b.db); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(func() { b.stop() })
	nc, err := nats.Connect(b.nats)
	if err != nil {
		t.Fatal(err)
	}
	if b.client, err = duly.NewClient(nc); err != nil {
		t.Fatal(err)
	}
	pay := duly.NewCheck[int, int]("pay", "pay", duly.Attempts(1000), duly.Backoff(50*time.Millisecond, 200*time.Millisecond))
	agent, err := duly.NewAgent(nc)
	if err == nil {
		err = pay.Serve(agent, func(context.Context, duly.Call[int]) (int, error) {
			b.calls.Add(1)
			if !b.healthy.Load() {
				return 0, errors.New("the bank is down")
			}
			return 1, nil
		})
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
	b.plan = duly.NewPlan("order", 1, pay)
	if err := b.plan.Apply(t.Context(), b.client); err != nil {
		t.Fatal(err)
	}
	return b
}

// start starts both nodes and waits until each owns partitions.
func (b *broken) start() {
	b.t.Helper()
	b.nodes = nil
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for _, name := range []string{"n1", "n2"} {
		cfg := good()
		cfg.NodeName, cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = name, b.nats, b.db, wire.DefaultNamespace
		cfg.Partitions, cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval = 4, 1000, 1000, 2*time.Second, 100*time.Millisecond
		cfg.BreakerShare, cfg.BreakerCalls, cfg.BreakerWindow, cfg.BreakerOpen, cfg.BreakerOpenMax = 50, 10, 2*time.Second, 2*time.Second, 4*time.Second
		n, err := Open(b.t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			b.t.Fatal(err)
		}
		b.nodes = append(b.nodes, n)
		go func() { ended <- errors.Join(n.Run(ctx), n.Close()) }()
	}
	b.stop = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				b.t.Error(err)
			}
		}
		b.stop = func() {}
	}
	until(b.t, "both nodes own partitions", func() bool {
		all := 0
		for _, n := range b.nodes {
			own := n.owning()
			if own == nil || own.Owned() == 0 {
				return false
			}
			all += own.Owned()
		}
		return all == 4
	})
}

// breaker is the agent's, as an operator sees it at a node.
func (b *broken) breaker(node int) operate.Breaker { return b.agent(node).Breaker }

func (b *broken) agent(node int) operate.Agent {
	b.t.Helper()
	b.nodes[node].agents.Forget() // of what another node changed it hears later
	all, err := b.nodes[node].ports().Agents.Agents(b.t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "pay" {
		b.t.Fatalf("agents %+v, %v", all, err)
	}
	return all[0]
}

// known reports whether the schedulers of both nodes have an open breaker, or none.
func (b *broken) known(open bool) bool {
	return !slices.ContainsFunc(b.nodes, func(n *Node) bool {
		own := n.owning()
		return own == nil || (len(own.Breakers()) > 0) != open
	})
}

func (b *broken) submit(id string, options ...duly.SubmitOption) {
	b.t.Helper()
	if _, err := b.plan.Submit(b.t.Context(), b.client, id, 1, options...); err != nil {
		b.t.Fatal(err)
	}
}

// view is a task as the API reads it, at a node.
func (b *broken) view(id string) core.View {
	v, err := b.nodes[0].ports().Reader.Get(b.t.Context(), wire.PartitionOf(id, 4), id)
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		b.t.Fatal(err)
	}
	return v
}

// all reports whether all tasks are so.
func (b *broken) all(ids []string, so func(core.View) bool) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !so(b.view(id)) })
}

func parkedAtPay(v core.View) bool { return v.State == core.StatePending && v.WaitsFor == "pay" }

// alerted reports whether a node has the alert of the agent's breaker.
func (b *broken) alerted() bool {
	return slices.ContainsFunc(b.nodes, func(n *Node) bool {
		return slices.ContainsFunc(n.ground.Troubles(), func(t ground.Trouble) bool { return t.Name == condBreaker && t.Key == "pay" })
	})
}

func (b *broken) force(f operate.ForceBreaker) {
	b.t.Helper()
	f.Agent, f.Reason = "pay", "a drill"
	if _, err := b.nodes[1].ports().Breakers.Force(b.t.Context(), operator, f); err != nil {
		b.t.Fatal(err)
	}
}

// TestBreakerOfAnAgent: an agent all of whose calls fail opens its breaker on both nodes; tasks park, spend no try and say why;
// operators force it, one that cannot wait so long is undone at once, and a restart of all nodes changes nothing. When the
// agent works again a trial closes it, and every task is processed.
func TestBreakerOfAnAgent(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	var ids []string
	for i := range 20 {
		ids = append(ids, "t"+strconv.Itoa(i))
		b.submit(ids[i], duly.Deadline(time.Now().Add(time.Hour)))
	}
	until(t, "it opens, on both nodes", func() bool { return b.known(true) })
	if is := b.breaker(1); is.State == core.BreakerClosed || is.Forced || is.Openings == 0 || !strings.Contains(is.Reason, " failed") {
		t.Errorf("%+v", is)
	}
	until(t, "it is told", b.alerted)
	if s := measured(t, b.nodes[0]); !strings.Contains(s, `duly_breaker_state{agent="pay"}`) {
		t.Errorf("the metric of the breaker: %s", s)
	}

	b.force(operate.ForceBreaker{State: operate.BreakerOpened, Until: time.Now().Add(30 * time.Minute)})
	until(t, "both nodes know that it is forced, and begin no trial", func() bool {
		return !slices.ContainsFunc(b.nodes, func(n *Node) bool {
			return !slices.ContainsFunc(n.owning().Breakers(), func(is core.Breaker) bool { return is.Forced })
		})
	})
	until(t, "all are parked", func() bool { return b.all(ids, parkedAtPay) })
	asked := b.calls.Load()
	if v := b.view("t0"); !strings.Contains(v.Sentence, "The circuit breaker of agent pay was opened by olga until 20") || !strings.Contains(v.Sentence, `: "a drill".`) {
		t.Errorf("it says: %s", v.Sentence)
	}
	tries := b.view("t0").Steps[0].Attempt
	b.submit("short", duly.Deadline(time.Now().Add(10*time.Minute)))
	until(t, "one that cannot wait so long is undone at once", func() bool { return b.view("short").State == core.StateUndone })
	if v := b.view("short"); !strings.Contains(v.Reason, "the breaker of agent pay is open until") || v.Steps[0].Attempt != 0 {
		t.Errorf("it is undone, because: %s", v.Reason)
	}
	b.submit("late", duly.Deadline(time.Now().Add(time.Hour)))
	ids = append(ids, "late")
	until(t, "a new one is parked", func() bool { return parkedAtPay(b.view("late")) })
	if a := b.agent(0); a.Waiting.N != 21 || a.FirstDeadline.IsZero() || len(a.Steps) != 1 || a.Steps[0] != (operate.WaitingStep{Type: "order", Step: "pay", Tasks: 21}) {
		t.Errorf("the agent: %+v", a)
	}

	b.stop()
	b.start()
	until(t, "both know it again", func() bool { return b.known(true) })
	if is := b.breaker(0); is.State != core.BreakerOpen || !is.Forced || is.By != "olga" || is.Until.IsZero() {
		t.Errorf("after a restart of all nodes: %+v", is)
	}
	if !b.all(ids, parkedAtPay) || b.view("t0").Steps[0].Attempt != tries {
		t.Errorf("after a restart: %+v", b.view("t0"))
	}
	if n := b.calls.Load(); n != asked {
		t.Errorf("the agent was called %d times while its breaker was open", n-asked)
	}

	b.force(operate.ForceBreaker{State: operate.BreakerClosed})
	until(t, "forced closed it is called, whatever that comes to", func() bool { return b.calls.Load() > asked+100 })
	if is := b.breaker(0); is.State != core.BreakerClosed || !is.Forced {
		t.Errorf("forced closed: %+v", is)
	}
	b.force(operate.ForceBreaker{State: operate.BreakerAuto})
	until(t, "let go, it opens by itself", func() bool { return b.known(true) && !b.breaker(0).Forced })

	b.healthy.Store(true)
	until(t, "all are processed", func() bool { return b.all(ids, func(v core.View) bool { return v.State == core.StateProcessed }) })
	// More calls let the trial go on to its end.
	for i := 0; !b.known(false); i++ {
		if i == 5000 {
			t.Fatalf("it is not closed: %+v", b.breaker(0))
		}
		b.submit("more-" + strconv.Itoa(i))
		until(t, "one more is done", func() bool { return b.view("more-"+strconv.Itoa(i)).State == core.StateProcessed })
	}
	until(t, "both see it closed, and the alert is over", func() bool {
		return b.breaker(0).State == core.BreakerClosed && b.breaker(1).State == core.BreakerClosed && !b.alerted()
	})
}

// TestNoAgent: tasks that wait for an agent that is not there spend no try; the list of agents says how many of all nodes, since
// when, until when and at which step.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	plan := duly.NewPlan("order", 1, duly.NewCheck[int, int]("ship", "ghost"))
	if err := plan.Apply(t.Context(), o.client); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	owners := map[string]bool{}
	for _, id := range []string{"g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7"} {
		if _, err := plan.Submit(t.Context(), o.client, id, 1, duly.Deadline(deadline)); err != nil {
			t.Fatal(err)
		}
		owners[o.partitions()[wire.PartitionOf(id, 4)].Owner] = true
	}
	if len(owners) != 2 {
		t.Fatalf("the tasks are all of %v", owners)
	}
	var ghost operate.Agent
	until(t, "all of them are told", func() bool {
		all, err := o.flow.Agents.Agents(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		ghost = all[0]
		return ghost.Unserved.N == 8
	})
	if ghost.Name != "ghost" || ghost.Instances != 0 || ghost.Unserved.AtLeast || ghost.Waiting.N != 0 || ghost.AwaySince.IsZero() || time.Since(ghost.AwaySince) > patience ||
		!ghost.FirstDeadline.Equal(deadline) || len(ghost.Steps) != 1 || ghost.Steps[0] != (operate.WaitingStep{Type: "order", Step: "ship", Tasks: 8}) {
		t.Errorf("%+v", ghost)
	}
	if v := o.view("g0"); v.Steps[0].Attempt != 0 {
		t.Errorf("tries are spent: %+v", v.Steps)
	}
}

// TestBreakerSentence: an open breaker is said with its end and its reason, a closed one is not.
func TestBreakerSentence(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, b := range map[string]operate.Breaker{
		"": {State: core.BreakerClosed, Forced: true},
		"The circuit breaker of agent pay is open until 2030-01-02T03:04:05Z: \"9 of 10 calls failed\".":                      {State: core.BreakerOpen, Until: at, Reason: "9 of 10 calls failed"},
		"The circuit breaker of agent pay was opened by olga until it is set to auto: \"a drill\".":                           {State: core.BreakerOpen, Forced: true, By: "olga", Reason: "a drill"},
		"The circuit breaker of agent pay is in trial: a few commands at a time are let through, and more with each success.": {State: core.BreakerTrial, Stage: 2},
	} {
		if got := breakerSentence("pay", b); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema/postgres"
)

// desk keeps pauses and the audit trail of all nodes of a test, beside their tasks in PostgreSQL.
type desk struct {
	mu     sync.Mutex
	pauses []operate.Pause
	trail  []operate.AuditEntry
}

func (d *desk) PutPause(_ context.Context, p operate.Pause) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pauses = append(d.pauses, p)
	return nil
}

func (d *desk) DeletePause(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pauses = slices.DeleteFunc(d.pauses, func(p operate.Pause) bool { return p.ID == id })
	return nil
}

func (d *desk) Pauses(context.Context) ([]operate.Pause, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.pauses), nil
}

func (d *desk) Append(_ context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trail = append(d.trail, e)
	return int64(len(d.trail)), nil, nil
}

func (d *desk) SetOutcome(_ context.Context, number int64, outcome string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trail[number-1].Outcome = outcome
	return nil
}

// deskStore is PostgreSQL with a desk; it counts how often a node reads the pauses.
type deskStore struct {
	*postgres.Store
	*desk
	reads *atomic.Int64
}

// Pauses implements operate.PauseStore.
func (s deskStore) Pauses(ctx context.Context) ([]operate.Pause, error) {
	s.reads.Add(1)
	return s.desk.Pauses(ctx)
}

// operated is two nodes with a desk, on a server and a database of the test's own.
type operated struct {
	t      *testing.T
	nodes  map[string]*Node
	flow   api.Ports // of n1
	nc     *nats.Conn
	client *duly.Client
}

func newOperated(t *testing.T) *operated {
	t.Helper()
	server := startNATS(t)
	var err error
	db := pgtestdb.Installation(t)
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	o := &operated{t: t, nodes: map[string]*Node{}}
	shared := &desk{}
	for _, name := range []string{"n1", "n2"} {
		cfg := good()
		cfg.NodeName, cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = name, server.ClientURL(), db, wire.DefaultNamespace
		cfg.Partitions, cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval = 4, 1000, 1000, 2*time.Second, 100*time.Millisecond
		n, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		n.store = deskStore{n.store.(*postgres.Store), shared, &atomic.Int64{}}
		n.agents.Pauses, n.agents.Breakers = n.store.Pauses, n.store.Breakers
		o.nodes[name] = n
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := errors.Join(<-ended, n.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	o.flow = o.nodes["n1"].ports()
	if o.nc, err = nats.Connect(server.ClientURL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.nc.Close)
	if o.client, err = duly.NewClient(o.nc); err != nil {
		t.Fatal(err)
	}
	until(t, "both nodes own partitions", func() bool {
		owners := map[string]int{}
		for _, p := range o.partitions() {
			if !p.LagUnknown {
				owners[p.Owner]++
			}
		}
		return owners["n1"] > 0 && owners["n2"] > 0 && owners["n1"]+owners["n2"] == 4
	})
	return o
}

func (o *operated) partitions() []operate.Partition {
	o.t.Helper()
	all, err := o.flow.Partitions.Partitions(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return all
}

// pausesKnown waits until the schedulers of both nodes have read the pauses that there are: a second reading begins when the
// first has reached the shards.
func (o *operated) pausesKnown() {
	o.t.Helper()
	reads := func(n *Node) int64 { return n.store.(deskStore).reads.Load() }
	before := map[string]int64{}
	for name, n := range o.nodes {
		before[name] = reads(n)
	}
	until(o.t, "both nodes know the pauses", func() bool {
		if err := o.nodes["n1"].conn.AnnouncePauses(); err != nil {
			o.t.Fatal(err)
		}
		return reads(o.nodes["n1"]) >= before["n1"]+2 && reads(o.nodes["n2"]) >= before["n2"]+2
	})
}

// view is a task, or empty while there is none.
func (o *operated) view(id string) core.View {
	v, err := o.nodes["n1"].store.Get(o.t.Context(), wire.PartitionOf(id, 4), id)
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		o.t.Fatal(err)
	}
	return v
}

var operator = operate.Actor{Name: "olga", Role: operate.RoleOperator, Via: "http"}

// TestPauseTheFlow: a pause that is set at one node holds tasks at all, shows what waits, and lets it go when it is lifted or
// over; labels and agents are seen from outside.
//
// covers: OP19
func TestPauseTheFlow(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	ctx := t.Context()
	for range 2 {
		agent, err := o.nodes["n2"].conn.ServeCommands("pay", true, func(r *natsbus.CommandRequest) { _ = r.Reply(core.Reply{Result: []byte("1")}) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(agent.Stop)
	}
	plan := duly.NewPlan("order", 1, duly.NewCheck[int, int]("pay", "pay"), duly.NewCheck[int, int]("ship", "ship"))
	if err := plan.Apply(ctx, o.client); err != nil {
		t.Fatal(err)
	}
	pause := func(p operate.Pause) operate.Pause {
		t.Helper()
		p.Reason = "the bank is down"
		p, err := o.flow.Pauses.SetPause(ctx, operator, p)
		if err != nil {
			t.Fatal(err)
		}
		o.pausesKnown()
		return p
	}
	byLabel := pause(operate.Pause{Label: "tier=gold"})
	both := []string{"g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7"} // of both nodes, by their partitions
	owners := map[string]bool{}
	for _, id := range both {
		if _, err := plan.Submit(ctx, o.client, id, 1, duly.Label("tier", "gold"), duly.Label("of", id)); err != nil {
			t.Fatal(err)
		}
		owners[o.partitions()[wire.PartitionOf(id, 4)].Owner] = true
	}
	if len(owners) != 2 {
		t.Fatalf("the tasks are all of %v", owners)
	}
	if _, err := plan.Submit(ctx, o.client, "free", 1, duly.Label("tier", "base")); err != nil {
		t.Fatal(err)
	}
	until(t, "a task without the label goes on to the agent that is not there", func() bool { v := o.view("free"); return len(v.Steps) == 2 && v.Steps[0].Status == "done" })
	until(t, "all that have it are parked", func() bool {
		return !slices.ContainsFunc(both, func(id string) bool { v := o.view(id); return v.State != core.StatePending || v.WaitsFor != "pay" })
	})
	if v := o.view("g0"); !slices.Equal(v.Labels, []core.Label{{Key: "tier", Value: "gold"}, {Key: "of", Value: "g0"}}) {
		t.Errorf("labels %v", v.Labels)
	}
	page, err := o.nodes["n2"].store.List(ctx, core.Filter{Label: "tier=gold", Limit: 100})
	if err != nil || len(page.Tasks) != len(both) {
		t.Errorf("by label: %d tasks, %v", len(page.Tasks), err)
	}
	byAgent := pause(operate.Pause{Agent: "pay"})
	views, err := o.flow.Pauses.Pauses(ctx)
	if err != nil || len(views) != 2 || views[0].ID != byAgent.ID {
		t.Fatalf("%+v, %v", views, err)
	}
	for _, v := range views {
		if left := time.Until(v.FirstDeadline); v.Waiting != (operate.Count{N: int64(len(both))}) || left < 30*time.Second || left > 2*time.Hour {
			t.Errorf("behind pause %s: %+v", v.ID, v)
		}
	}
	until(t, "both instances have answered in time", func() bool {
		o.nodes["n1"].agents.Forget()
		agents, err := o.flow.Agents.Agents(ctx)
		if err != nil || len(agents) != 2 || agents[0].Name != "pay" || !agents[0].Paused || agents[0].Waiting.N != 8 || agents[1].Name != "ship" || agents[1].Instances != 0 || agents[1].Paused {
			t.Fatalf("agents %+v, %v", agents, err)
		}
		return agents[0].Instances == 2 && agents[0].Calls == 1
	})
	if err := o.flow.Pauses.LiftPause(ctx, operator, byLabel.ID, "it is back"); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Submit(ctx, o.client, "base", 1); err != nil {
		t.Fatal(err)
	}
	until(t, "the other pause holds all of them", func() bool { return o.view("base").WaitsFor == "pay" && o.view("g0").WaitsFor == "pay" })
	pause(operate.Pause{Type: "order", Step: "pay", Until: time.Now().Add(3 * time.Second)})
	if err := o.flow.Pauses.LiftPause(ctx, operator, byAgent.ID, "it is back"); err != nil {
		t.Fatal(err)
	}
	until(t, "all go on when the last is over", func() bool {
		return !slices.ContainsFunc(append(both, "base"), func(id string) bool { v := o.view(id); return len(v.Steps) != 2 || v.Steps[0].Status != "done" })
	})
}

// TestMoveAPartition: a pin moves a partition to the node that is named, a step-down to another; a pin to a node that is not
// live moves nothing and is shown as such.
func TestMoveAPartition(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	ctx := t.Context()
	first := o.partitions()[0]
	other := map[string]string{"n1": "n2", "n2": "n1"}[first.Owner]
	owned := func(owner string) func() bool {
		return func() bool { p := o.partitions()[0]; return p.Owner == owner && p.Epoch > first.Epoch }
	}
	if err := o.flow.Partitions.Pin(ctx, operator, 0, other, "there is room", false); err != nil {
		t.Fatal(err)
	}
	until(t, "the pinned node owns it", owned(other))
	if p := o.partitions()[0]; p.Pinned != other || p.PinIgnored {
		t.Errorf("%+v", p)
	}
	if err := o.flow.Partitions.Pin(ctx, operator, 0, "n3", "it comes tomorrow", true); err != nil {
		t.Fatal(err)
	}
	until(t, "it goes back to the node that it falls to", owned(first.Owner))
	if p := o.partitions()[0]; p.Pinned != "n3" || !p.PinIgnored {
		t.Errorf("%+v", p)
	}
	if err := o.flow.Partitions.StepDown(ctx, operator, 0, "it is hot"); err != nil {
		t.Fatal(err)
	}
	until(t, "another owns it", owned(other))
	if p := o.partitions()[0]; p.SteppedDown != first.Owner || p.SteppedDownUntil.IsZero() {
		t.Errorf("%+v", p)
	}
	if err := o.flow.Partitions.Unpin(ctx, operator, 0, "as it was"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is where it falls", owned(first.Owner))
	if p := o.partitions()[0]; p.Pinned != "" || p.SteppedDown != "" || p.OwnerGone {
		t.Errorf("%+v", p)
	}
}

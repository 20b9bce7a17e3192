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
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/schema"
)

// dyingStore is the state store of a node that dies when its owner has decided to move a task and not yet written it.
type dyingStore struct {
	schema.Store
	decided chan struct{}
	once    sync.Once
}

func (s *dyingStore) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	for i := range b.Writes {
		if slices.ContainsFunc(b.Writes[i].Records, func(r core.Record) bool { return r.Kind == core.KindMigrated }) {
			s.once.Do(func() { close(s.decided) })
			return core.CommitResult{}, errors.New("the node is dead")
		}
	}
	return s.Store.Commit(ctx, b)
}

// brittle is an observer that panics at each move.
type brittle struct{}

func (brittle) Name() string { return "brittle" }

func (brittle) Committed(c *scheduler.Committed) error {
	for _, w := range c.All() {
		if slices.ContainsFunc(w.Records, func(r core.Record) bool { return r.Kind == core.KindMigrated }) {
			panic("a kind of row that it does not know")
		}
	}
	return nil
}

// migrating is a plan whose tasks wait for an approval, and what its last step's agent is.
func migrating(version int64, first, last string, more ...duly.StepOf[parcel]) (*duly.Plan[parcel], *duly.Signal[parcel, string]) {
	reserve := duly.NewStep[parcel, int]("reserve", first)
	approve := duly.NewSignal[parcel, string]("approve")
	ship := duly.NewStep[parcel, int]("ship", last)
	return duly.NewPlan[parcel]("parcel", version, append([]duly.StepOf[parcel]{reserve, approve, ship}, more...)...).With(duly.TaskCompleteBy(time.Hour)), approve
}

// Over NATS and a database: a task that waits in a step is moved and goes on by the new plan, though its owner dies between
// the order and the row; one whose begun step is another one in the version stays as it was. The new version has a step more: what follows the
// task from its birth must not stumble over it.
//
// covers: OP2, OP3, L5
func TestMigrateOverNATS(t *testing.T) {
	t.Parallel()
	for name, url := range repairStores {
		t.Run(name, func(t *testing.T) { testMigrate(t, url(t)) })
	}
}

func testMigrate(t *testing.T, database string) {
	ctx := t.Context()
	server := startNATS(t)
	if err := Migrate(ctx, database); err != nil {
		t.Fatal(err)
	}
	cfg := good()
	cfg.Partitions, cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval = 2, 100, 100, time.Second, 100*time.Millisecond
	cfg.Links = config.Links{NATSURL: server.ClientURL(), DatabaseURL: database}
	open := func(before func(*Node)) (n *Node, stop func()) {
		t.Helper()
		n, err := Open(ctx, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		before(n)
		running, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = errors.Join(n.Run(running), n.Close()) // of a node that dies it does not matter
		}()
		stop = sync.OnceFunc(func() { cancel(); <-ended })
		t.Cleanup(stop)
		return n, stop
	}
	dying := &dyingStore{decided: make(chan struct{})}
	first, kill := open(func(n *Node) { dying.Store = n.store; n.store = dying })

	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var trucks, drones atomic.Int64
	agent, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	serve := func(step *duly.Step[parcel, int], n *atomic.Int64) error {
		return step.Serve(agent, func(context.Context, duly.Call[parcel]) (int, error) { return int(n.Add(1)), nil },
			func(context.Context, duly.Undo[parcel, int]) error { return nil })
	}
	err = errors.Join(serve(duly.NewStep[parcel, int]("reserve", "stock"), new(atomic.Int64)),
		serve(duly.NewStep[parcel, int]("bill", "office"), new(atomic.Int64)), serve(duly.NewStep[parcel, int]("ship", "truck"), &trucks), serve(duly.NewStep[parcel, int]("ship", "drone"), &drones))
	if err != nil {
		t.Fatal(err)
	}
	serving, end := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { _ = agent.Run(serving) })
	defer func() { end(); served.Wait() }()

	c, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	byTruck, approve := migrating(1, "stock", "truck")
	byDrone, _ := migrating(2, "stock", "drone", duly.NewStep[parcel, int]("bill", "office")) // one step more
	elsewhere, _ := migrating(3, "depot", "drone")
	soon(t, "the first plan is taken", func() bool { return byTruck.Apply(ctx, c) == nil })
	ids := []string{"m-1", "m-2", "m-3"}
	for _, id := range ids {
		soon(t, "a task is taken", func() bool { _, err := byTruck.Submit(ctx, c, id, parcel{1}); return err == nil })
	}
	for _, p := range []*duly.Plan[parcel]{byDrone, elsewhere} {
		if err := p.Apply(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	now := first // the node that is asked
	view := func(id string) core.View {
		t.Helper()
		v, err := now.store.Get(ctx, wire.PartitionOf(id, cfg.Partitions), id)
		if err != nil && !errors.Is(err, core.ErrNotFound) { // it may not have been read yet
			t.Fatal(err)
		}
		return v
	}
	for _, id := range ids {
		soon(t, id+" waits for its approval", func() bool { v := view(id); return len(v.Steps) == 3 && v.Steps[1].Status == core.StepRunning.String() })
	}
	start := func(version int64, ids ...string) string {
		t.Helper()
		sel := operate.Selection{}
		for _, id := range ids {
			sel.IDs = append(sel.IDs, operate.TaskRef{Type: "parcel", ID: id})
		}
		s := now.repairs(nil)
		p, err := s.Preview(ctx, repairer, sel, operate.Request{Action: operate.ActionMigrate, Version: version})
		if err != nil {
			t.Fatal(err)
		}
		op, err := s.Start(ctx, repairer, p.Token, 0, 0, "by drone", p.Tasks)
		if err != nil {
			t.Fatal(err)
		}
		return op.ID
	}
	done := func(id string, want operate.Tally) {
		t.Helper()
		var op operate.Operation
		soon(t, "the operation ends", func() bool {
			op, err = now.store.Operation(ctx, id)
			return err == nil && op.State == operate.OperationDone
		})
		if op.Tally != want {
			t.Errorf("tally %+v, want %+v", op.Tally, want)
		}
	}

	before := view("m-3")
	refused := start(3, "m-3")
	done(refused, operate.Tally{Skipped: 1})
	members, err := now.store.Members(ctx, refused, "", 0, 10)
	if want := "refused: step reserve has begun, and version 3 has another agent for it"; err != nil || len(members) != 1 || members[0].Text != want {
		t.Errorf("members %+v, %v; want %s", members, err, want)
	}
	if after := view("m-3"); after.PlanVersion != 1 || after.Seq != before.Seq {
		t.Errorf("the refused migration left it of version %d at row %d, it was at row %d", after.PlanVersion, after.Seq, before.Seq)
	}

	moving := start(2, "m-1", "m-2")
	select {
	case <-dying.decided:
	case <-time.After(patience):
		t.Fatal("no owner decided")
	}
	kill()
	now, _ = open(func(n *Node) { t.Cleanup(n.observers.Add(brittle{})) })
	done(moving, operate.Tally{Done: 2})
	for _, id := range []string{"m-1", "m-2"} {
		v := view(id)
		rows, err := now.store.JournalPage(ctx, v.Partition, v.Number, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		moved := slices.DeleteFunc(rows, func(r core.Record) bool { return r.Kind != core.KindMigrated })
		if len(moved) != 1 || moved[0].Actor != operate.OperationActor(moving) || v.PlanVersion != 2 || v.State != before.State || v.Steps[1].Status != core.StepRunning.String() {
			t.Errorf("%s is %s of version %d, moved by %+v", id, v.State, v.PlanVersion, moved)
		}
	}
	// A task that the node which moves it has followed from its birth.
	soon(t, "a task is taken", func() bool { _, err := byTruck.Submit(ctx, c, "m-4", parcel{1}); return err == nil })
	soon(t, "m-4 waits for its approval", func() bool {
		v := view("m-4")
		return len(v.Steps) == 3 && v.Steps[1].Status == core.StepRunning.String()
	})
	done(start(2, "m-4"), operate.Tally{Done: 1})
	ids = append(ids, "m-4")
	soon(t, "the observer that panicked is told", func() bool {
		return slices.ContainsFunc(now.ground.Troubles(), func(t ground.Trouble) bool { return t.Name == condObservers })
	})
	for _, id := range ids {
		soon(t, id+" is approved", func() bool { return byTruck.Signal(ctx, c, id, approve.Answer("yes").To(view(id).Steps[1].Ask)) == nil })
		soon(t, id+" ends", func() bool { return view(id).State == core.StateProcessed })
	}
	if d, by := drones.Load(), trucks.Load(); d != 3 || by != 1 {
		t.Errorf("%d went by drone and %d by truck, want 3 and 1", d, by)
	}
}

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/repair"
	"duly.dev/duly/internal/wire"
)

type parcel struct{ N int }

// bank is an agent whose service is down until it is mended; then it refuses some still.
type bank struct {
	mended  atomic.Bool
	refuses func(parcel) bool
	paid    sync.Map // how often each was paid
}

// repairing is a node with all roles, a bank whose service is down, and so many tasks in error because of it.
func repairing(tb testing.TB, url string, tasks int, b *bank) *Node {
	tb.Helper()
	ctx := tb.Context()
	server := natstest.Start(tb, natsserver.Options{})
	if err := Migrate(ctx, url); err != nil {
		tb.Fatal(err)
	}
	cfg := good()
	cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = server.ClientURL(), url, wire.DefaultNamespace
	cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval, cfg.ReplyTo = 10_000, 1000, 2*time.Second, 100*time.Millisecond, []string{"_INBOX."}
	n, err := Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		tb.Fatal(err)
	}
	a, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		tb.Fatal(err)
	}
	reserve := duly.NewStep[parcel, int]("reserve", "stock")
	pay := duly.NewStep[parcel, int]("pay", "bank", duly.OnExhausted(duly.PolicyError))
	plan := duly.NewPlan[parcel]("parcel", 1, reserve, pay).With(duly.TaskCompleteBy(time.Hour))
	undo := func(context.Context, duly.Undo[parcel, int]) error { return nil }
	err = errors.Join(
		reserve.Serve(a, func(context.Context, duly.Call[parcel]) (int, error) { return 1, nil }, undo),
		pay.Serve(a, func(_ context.Context, call duly.Call[parcel]) (int, error) {
			if !b.mended.Load() || b.refuses(call.Input) {
				return 0, duly.Refuse(errors.New("account 4711 is blocked"))
			}
			if _, again := b.paid.LoadOrStore(call.Input.N, true); again {
				return 0, duly.Refuse(errors.New("paid twice"))
			}
			return 2, nil
		}, undo))
	if err != nil {
		tb.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { err = errors.Join(n.Run(running), n.Close()) })
	wg.Go(func() { _ = a.Run(running) })
	tb.Cleanup(func() {
		cancel()
		wg.Wait()
		nc.Close()
		if err != nil {
			tb.Error(err)
		}
	})
	c, err := duly.NewClient(nc)
	if err != nil {
		tb.Fatal(err)
	}
	soon(tb, "the plan is taken", func() bool { return plan.Apply(ctx, c) == nil })
	var submits sync.WaitGroup
	slots := make(chan struct{}, 256)
	for i := range tasks {
		slots <- struct{}{}
		submits.Go(func() {
			defer func() { <-slots }()
			soon(tb, "a task is taken", func() bool {
				_, err := plan.Submit(ctx, c, fmt.Sprintf("p-%d", i), parcel{i})
				return err == nil
			})
		})
	}
	submits.Wait()
	var counts []core.Count
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("tasks: %+v", counts)
		}
	})
	soon(tb, "all are in error", func() bool {
		counts, _ = n.store.Counts(ctx)
		return len(counts) == 1 && counts[0].State == core.StateError && counts[0].Tasks == int64(tasks)
	})
	return n
}

// soon polls until ok, of a test or a benchmark.
func soon(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(5 * patience) // a benchmark makes many
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

var repairer = operate.Actor{Name: "anna", Role: operate.RoleOperator, Via: "http"}

// repaired runs an operation over the failure group of all tasks, and returns it when it has come to an end or a brake.
func repaired(tb testing.TB, n *Node, rate int) (operate.Preview, operate.Operation) {
	tb.Helper()
	ctx := tb.Context()
	groups, err := n.store.Groups(ctx, operate.GroupFilter{Limit: 10})
	if err != nil || len(groups.Groups) != 1 {
		tb.Fatalf("groups %+v, %v", groups, err)
	}
	s := n.repairs(nil)
	p, err := s.Preview(ctx, repairer, operate.Selection{Group: groups.Groups[0].ID}, operate.Request{Action: operate.ActionResubmit})
	if err != nil {
		tb.Fatal(err)
	}
	op, err := s.Start(ctx, repairer, p.Token, rate, 0, "the bank is back", p.Tasks)
	if err != nil {
		tb.Fatal(err)
	}
	soon(tb, "the operation ends", func() bool {
		op, err = s.Show(ctx, op.ID)
		return err == nil && (op.State == operate.OperationDone || op.State == operate.OperationBraked && op.Tally.Asked == 0)
	})
	return p, op
}

// repairStores are the state stores, each empty with every call.
var repairStores = map[string]func(testing.TB) string{
	"SQLite":     func(tb testing.TB) string { return "sqlite://" + filepath.Join(tb.TempDir(), "duly.db") },
	"PostgreSQL": pgtestdb.Installation,
}

// An operation over everything that is real: control stream, owners, agents, state store. What the rehearsal says is what
// happens, each is paid for once, and what cannot be repaired stops it.
//
// covers: OP2, OP3, OP4
func TestRepair(t *testing.T) {
	t.Parallel()
	for name, url := range repairStores {
		t.Run(name, func(t *testing.T) {
			b := &bank{refuses: func(parcel) bool { return false }}
			const tasks = 300
			n := repairing(t, url(t), tasks, b)
			b.mended.Store(true)
			p, op := repaired(t, n, 0)
			if p.Rehearsal.Repairable != tasks || op.State != operate.OperationDone || op.Tally != (operate.Tally{Done: tasks}) || op.Wave != 5 {
				t.Errorf("rehearsed %+v; %s in wave %d with %+v", p.Rehearsal, op.State, op.Wave, op.Tally)
			}
			paid := 0
			b.paid.Range(func(any, any) bool { paid++; return true })
			if paid != tasks {
				t.Errorf("%d were paid", paid)
			}
		})
	}
}

// covers: OP4
func TestRepairBrakes(t *testing.T) {
	t.Parallel()
	b := &bank{refuses: func(p parcel) bool { return p.N%2 == 0 }}
	n := repairing(t, "sqlite://"+filepath.Join(t.TempDir(), "duly.db"), 300, b)
	b.mended.Store(true)
	_, op := repaired(t, n, 0)
	if op.State != operate.OperationBraked || op.Tally.Waiting < 300-31 || op.Tally.Total() != 300 {
		t.Errorf("%s (%s) with %+v", op.State, op.Why, op.Tally)
	}
}

// BenchmarkRepair is tasks that are repaired a second, from the start of an operation to its end, at the highest rate.
func BenchmarkRepair(b *testing.B) {
	for name, url := range repairStores {
		b.Run(name, func(b *testing.B) {
			k := &bank{refuses: func(parcel) bool { return false }}
			n := repairing(b, url(b), b.N, k)
			k.mended.Store(true)
			p, op := repaired(b, n, repair.RateMax)
			if op.Tally.Done != int64(b.N) {
				b.Fatalf("%s (%s) with %+v", op.State, op.Why, op.Tally)
			}
			b.ReportMetric(float64(b.N)/op.Ended.Sub(op.Started).Seconds(), "tasks/s")
			b.ReportMetric(float64(p.Rehearsal.Repairable), "rehearsed")
		})
	}
}

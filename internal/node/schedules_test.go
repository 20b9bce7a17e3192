package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
	"duly.dev/duly/internal/schedules"
	"duly.dev/duly/internal/wire"
)

// clockwork is a node whose one agent counts its calls by task.
type clockwork struct {
	*Node
	client *duly.Client
	plan   *duly.Plan[int]

	mu    sync.Mutex
	calls map[string]int
	begun map[string]time.Time
}

func (c *clockwork) called(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

func startClockwork(t *testing.T) *clockwork {
	t.Helper()
	ctx := t.Context()
	server := startNATS(t)
	cfg := good()
	cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = server.ClientURL(), "sqlite:"+filepath.Join(t.TempDir(), "duly.db"), wire.DefaultNamespace
	cfg.Lease, cfg.ScanInterval, cfg.ReplyTo = 2*time.Second, 100*time.Millisecond, []string{"_INBOX."}
	if err := Migrate(ctx, cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	n, err := Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	c := &clockwork{Node: n, calls: map[string]int{}, begun: map[string]time.Time{}}
	a, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	tick := duly.NewCheck[int, int]("tick", "clock")
	c.plan = duly.NewPlan[int]("tick", 1, tick)
	if err := tick.Serve(a, func(_ context.Context, call duly.Call[int]) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[call.Task]++
		c.begun[call.Task] = time.Now()
		return 1, nil
	}); err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { err = errors.Join(n.Run(running), n.Close()) })
	wg.Go(func() { _ = a.Run(running) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		nc.Close()
		if err != nil {
			t.Error(err)
		}
	})
	if c.client, err = duly.NewClient(nc); err != nil {
		t.Fatal(err)
	}
	soon(t, "the plan is taken", func() bool { return c.plan.Apply(ctx, c.client) == nil })
	return c
}

// alwaysLeads is a second leader, as for the time of a lease.
type alwaysLeads struct{}

// Leads implements schedules.Leader.
func (alwaysLeads) Leads() bool { return true }

// TestSchedules: over a real node a schedule's runs become tasks, each one once, also while two lead; an operator pauses it,
// runs it by hand, and is told of one whose tasks are not taken.
func TestSchedules(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	ctx := t.Context()
	olga := operate.Actor{Name: "olga", Role: operate.RoleOperator}
	svc := c.scheduling()
	other := schedules.NewRunner(schedules.Config{Interval: 70 * time.Millisecond, Now: c.clock.time}, c.store, scheduleTasks{c.Node}, handOver{c.conn}, alwaysLeads{}, slog.New(slog.DiscardHandler))
	leading, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { other.Run(leading) })
	defer wg.Wait()
	defer end()
	if _, err := svc.PutSchedule(ctx, olga, schedule.Spec{Name: "often", Type: "tick", Input: []byte(`7`), Every: "1s", Overlap: schedule.OverlapAll, Labels: map[string]string{"of": "often"}}, ""); err != nil {
		t.Fatal(err)
	}
	soon(t, "three runs are submitted", func() bool {
		v, err := svc.Schedule(ctx, "often")
		return err == nil && v.Submitted >= 3
	})
	if _, err := svc.PauseSchedule(ctx, olga, "often", true, "enough"); err != nil {
		t.Fatal(err)
	}
	var v operate.ScheduleView
	soon(t, "the outcome of the last is known", func() (well bool) {
		var err error
		v, err = svc.Schedule(ctx, "often")
		return err == nil && v.Outcome == core.StateProcessed
	})
	page, err := c.store.List(ctx, core.Filter{Label: "of=often", Limit: 100})
	if err != nil || int64(len(page.Tasks)) != v.Submitted || v.Missed+v.Skipped != 0 {
		t.Errorf("%d tasks of %d submitted, %d missed, %d skipped: %v", len(page.Tasks), v.Submitted, v.Missed, v.Skipped, err)
	}
	for _, task := range page.Tasks {
		if n := c.called(task.ID); n != 1 || !strings.HasPrefix(task.ID, "often-20") {
			t.Errorf("task %s was called %d times", task.ID, n)
		}
	}
	run, err := svc.RunSchedule(ctx, olga, "often", "", "")
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the run by hand is done", func() bool { return c.called(run.Task) == 1 })
	if s := measured(t, c); !strings.Contains(s, "duly_schedules_submitted_total ") || strings.Contains(s, "duly_schedules_submitted_total 0\n") && other.Stats().Submitted == 0 {
		t.Errorf("metrics %s", s)
	}

	// One whose tasks are not taken: its version is not there any more when the run comes.
	bad := operate.Schedule{Spec: schedule.Spec{Name: "bad", Type: "tick", Input: []byte(`7`), Every: "1s", PlanVersion: 9}, Revision: 1, Created: time.Now(), Changed: time.Now(), Cursor: time.Now().Add(-3 * time.Second).UTC()}
	bad.Due = operate.DueOf(&bad)
	end()
	if err := c.store.PutSchedule(ctx, bad, 0); err != nil {
		t.Fatal(err)
	}
	soon(t, "the condition names it", func() bool {
		found := c.probeSubmissions(ctx)
		return len(found) == 1 && found[0].Key == "bad" && strings.Contains(found[0].Err.Error(), "version")
	})
	if err := svc.DeleteSchedule(ctx, olga, "bad", "no such version"); err != nil {
		t.Fatal(err)
	}
	soon(t, "the condition is over", func() bool { return len(c.probeSubmissions(ctx)) == 0 })
}

// TestStartAt: a task that begins later is stored and parked, begins in time, and one that is cancelled before leaves nothing.
func TestStartAt(t *testing.T) {
	t.Parallel()
	c := startClockwork(t)
	ctx := t.Context()
	start := time.Now().Add(6 * time.Second)
	if _, err := c.plan.Submit(ctx, c.client, "later", 1, duly.StartAt(start)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.plan.Submit(ctx, c.client, "never", 1, duly.StartAt(time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	state := func(id string) core.State {
		v, err := c.store.Get(ctx, wire.PartitionOf(id, c.Partitions()), id)
		if err != nil {
			return ""
		}
		return v.State
	}
	soon(t, "both are parked", func() bool {
		return state("later") == core.StatePending && state("never") == core.StatePending || time.Now().After(start)
	})
	if got := state("later"); got != core.StatePending || c.called("later") > 0 {
		t.Errorf("before its start the task is %s and was called %d times", got, c.called("later"))
	}
	if err := c.client.Cancel(ctx, "tick", "never", "not wanted"); err != nil {
		t.Fatal(err)
	}
	soon(t, "the cancelled one has ended", func() bool { return state("never") == core.StateUndone })
	soon(t, "the other is done", func() bool { return state("later") == core.StateProcessed })
	c.mu.Lock()
	defer c.mu.Unlock()
	if early := start.Sub(c.begun["later"]); early > 0 || early < -10*time.Second || c.calls["later"] != 1 {
		t.Errorf("it began %v before its start, and was called %d times", early, c.calls["later"])
	}
	if c.calls["never"] != 0 {
		t.Error("the cancelled one was called")
	}
}

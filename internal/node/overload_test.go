package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
)

// busyOwner is a scheduler that is overloaded, or not.
type busyOwner bool

func (busyOwner) Owned() int         { return 1 }
func (o busyOwner) Overloaded() bool { return bool(o) }

func (busyOwner) Snapshot() scheduler.Snapshot { return scheduler.Snapshot{} }
func (busyOwner) Breakers() []core.Breaker     { return nil }
func (busyOwner) Full(int) bool                { return false }
func (busyOwner) Waits(int) bool               { return false }

// The machine's own duties hear of the overload of this node's own scheduler; without one there is none.
func TestDutiesHearOfOverload(t *testing.T) {
	n := &Node{}
	overloaded := n.overloaded
	if overloaded() {
		t.Error("overloaded without a scheduler")
	}
	n.setOwner(busyOwner(false))
	if overloaded() {
		t.Error("overloaded although the scheduler is not")
	}
	n.setOwner(busyOwner(true))
	if !overloaded() {
		t.Error("the scheduler is overloaded, and nothing hears of it")
	}
	n.setOwner(nil)
	if overloaded() {
		t.Error("overloaded after the scheduler is gone")
	}
}

// TestDoorHearsOfStandstill: what schedulers say of their partitions comes to the doors of other nodes, and a submission
// that would begin too late is refused with a time to come again. The partitions seem to be those of a node that is gone.
func TestDoorHearsOfStandstill(t *testing.T) {
	c := startClockwork(t)
	gone := make([]core.Reading, c.cfg.Partitions)
	for p := range gone {
		gone[p] = core.Reading{Partition: p, Epoch: 1 << 40}
	}
	if err := c.conn.PublishReadings("gone", gone); err != nil {
		t.Fatal(err)
	}
	n := 0
	var refused *duly.SubmitError
	soon(t, "a submission is refused", func() bool {
		n++
		_, err := c.plan.Submit(t.Context(), c.client, fmt.Sprintf("t%d", n), n, duly.Within(time.Second))
		return errors.As(err, &refused)
	})
	if refused.Code != 429 || refused.RetryAfter <= 0 || !strings.Contains(refused.Description, "it would begin in about") {
		t.Errorf("refused with %d after %v: %s", refused.Code, refused.RetryAfter, refused.Description)
	}
	soon(t, "one that may wait is taken", func() bool {
		_, err := c.plan.Submit(t.Context(), c.client, "long", 1, duly.Within(time.Hour))
		return err == nil
	})
}

// TestTimeCountsFromTheTurn: on a whole node, what has waited in the stream for longer than its time is done where its plan's
// time counts from its turn, and is undone unbegun where it counts from the submission. Tasks that hold the window of one
// partition keep them waiting.
func TestTimeCountsFromTheTurn(t *testing.T) {
	c := startClockwork(t)
	ctx := t.Context()
	nc, err := nats.Connect(c.cfg.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	vault, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	hold := duly.NewCheck[int, int]("hold", "vault")
	var held atomic.Int64
	if err := hold.Serve(vault, func(ctx context.Context, _ duly.Call[int]) (int, error) {
		held.Add(1)
		select {
		case <-release:
			return 1, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = vault.Run(running) })
	defer wg.Wait()
	defer stop()

	tick := duly.NewCheck[int, int]("tick", "clock")
	const within, waits = 5 * time.Second, 6 * time.Second
	holding := duly.NewPlan[int]("holding", 1, duly.NewCheck[int, int]("hold", "vault", duly.CompleteBy(50*time.Second)))
	turn := duly.NewPlan[int]("turn", 1, tick).With(duly.TaskCompleteBy(within), duly.QueueFor(time.Minute))
	now := duly.NewPlan[int]("now", 1, tick).With(duly.TaskCompleteBy(within))
	for _, p := range []*duly.Plan[int]{holding, turn, now} {
		if err := p.Apply(ctx, c.client); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	next := func(p *duly.Plan[int]) string {
		id := ""
		for id == "" || wire.PartitionOf(id, c.cfg.Partitions) != 0 {
			n++
			id = fmt.Sprint(p.Name(), "-", n)
		}
		if _, err := p.Submit(ctx, c.client, id, 1); err != nil {
			t.Fatal(err)
		}
		return id
	}
	soon(t, "the window of the partition is full", func() bool {
		next(holding)
		return held.Load() >= int64(c.cfg.InFlight) && c.owning().Full(0) // one that is not read yet is full, too
	})
	queued, timed := next(turn), next(now)
	came := time.Now()
	soon(t, "their time is over", func() bool { return time.Since(came) > waits })
	if _, err := c.client.Get(ctx, "turn", queued); !errors.Is(err, duly.ErrNotFound) {
		t.Errorf("before its turn: %v, want that it is no task yet", err)
	}
	close(release)
	ended := func(typ, id string) (task duly.Task) {
		soon(t, "the end of "+id, func() bool {
			task, err = c.client.Get(ctx, typ, id)
			return err == nil && task.State.Ended()
		})
		return task
	}
	if got := ended("turn", queued); got.State != duly.StateProcessed || got.CompleteBy.Sub(got.CreatedAt) < waits {
		t.Errorf("%s: %s, its deadline %v after its submission", queued, got.State, got.CompleteBy.Sub(got.CreatedAt))
	}
	if got := ended("now", timed); got.State != duly.StateUndone || c.called(timed) != 0 {
		t.Errorf("%s: %s, and its agent was called %d times", timed, got.State, c.called(timed))
	}
}

package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
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

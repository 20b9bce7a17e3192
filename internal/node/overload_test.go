package node

import (
	"testing"

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

// Ingest hears of the overload of this node's own scheduler; without one there is none.
func TestIngestHearsOfOverload(t *testing.T) {
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
		t.Error("the scheduler is overloaded, and ingest does not hear of it")
	}
	n.setOwner(nil)
	if overloaded() {
		t.Error("overloaded after the scheduler is gone")
	}
}

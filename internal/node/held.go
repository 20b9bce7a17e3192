package node

import (
	"context"

	"duly.dev/duly/internal/ground"
	"duly.dev/duly/schema"
)

// condDatabaseHeld is the condition that nobody keeps the database from giving back what it does not need.
const condDatabaseHeld = "database-held"

// heldCondition is what is told of that.
func (n *Node) heldCondition() ground.Condition {
	return ground.Condition{
		Name: condDatabaseHeld, Shared: true, Probe: n.probeHeld, Every: unreadEvery, Timeout: readTimeout,
	}
}

// probeHeld looks at the database, and notes what it finds for metrics.
func (n *Node) probeHeld(ctx context.Context) error {
	store, ok := n.store.(interface {
		Held(context.Context) (schema.Held, error)
	})
	if !ok {
		return nil
	}
	held, err := store.Held(ctx)
	if err != nil {
		n.held.Store(nil)
		return ground.ErrUnknown // that the database cannot be asked is another condition
	}
	n.held.Store(&held)
	return held.Trouble()
}

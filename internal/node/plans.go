package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/bus"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// planCache is the plans as ingest sees them: the highest version of each type.
type planCache struct {
	store  schema.Store
	latest atomic.Pointer[map[string]*core.Plan]
	wg     sync.WaitGroup
}

func newPlanCache(store schema.Store) *planCache {
	c := &planCache{store: store}
	c.latest.Store(&map[string]*core.Plan{})
	return c
}

// Plan implements ingest.Plans.
func (c *planCache) Plan(taskType string) *core.Plan { return (*c.latest.Load())[taskType] }

// Reload implements ingest.Plans.
func (c *planCache) Reload(done func(error)) {
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		done(c.read(ctx))
	})
}

func (c *planCache) read(ctx context.Context) error {
	plans, err := c.store.Plans(ctx)
	if err != nil {
		return fmt.Errorf("read plans: %w", err)
	}
	latest := make(map[string]*core.Plan, len(plans))
	for i := range plans {
		p := &plans[i]
		if have := latest[p.Name]; have == nil || have.Version < p.Version {
			latest[p.Name] = p
		}
	}
	c.latest.Store(&latest)
	return nil
}

// readTimeout bounds a read that nobody waits for with a time of his own.
const readTimeout = 5 * time.Second

// applyPlan stores a plan that came over the wire and tells everybody.
func (n *Node) applyPlan(spec []byte) bus.PlanAnswer {
	p, err := bus.DecodePlan(spec)
	if err != nil {
		return bus.PlanAnswer{Error: &bus.WireError{Code: 400, Description: err.Error()}}
	}
	answer := bus.PlanAnswer{Name: p.Name, Version: p.Version}
	p = p.WithDefaults()
	if err := p.Validate(n.conn.MaxPayload()); err != nil {
		answer.Error = &bus.WireError{Code: 400, Description: err.Error()}
		return answer
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	switch err := n.store.PutPlan(ctx, p); {
	case errors.Is(err, core.ErrPlanConflict):
		answer.Error = &bus.WireError{Code: 409, Description: err.Error()}
	case err != nil:
		n.log.Error("cannot store a plan", "plan", p.Name, "version", p.Version, "error", err)
		answer.Error = &bus.WireError{Code: 503, Description: "the plan could not be stored just now"}
	default:
		answer.Stored = true
		if err := n.conn.AnnouncePlans(); err != nil {
			n.log.Warn("a plan is stored, but the announcement failed; nodes read it when they need it", "plan", p.Name, "error", err)
		}
	}
	return answer
}

package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// versionFor gives an event that moves a task the version of the plan that it names; why says that this node cannot read it.
func (s *Shard) versionFor(ctx context.Context, p *partition, e *entry, ev *core.Event) (why, err error) {
	to, unread, err := s.planFor(ctx, p, e.task.Type, ev.Version, true)
	if unread != nil {
		return fmt.Errorf("%w: task %s: %w", core.ErrNotAllowed, e.task.ID, unread), nil
	}
	if err != nil || to == nil {
		return nil, err // the core refuses a version that is not known
	}
	ev.Plan = to.plan
	return nil, nil
}

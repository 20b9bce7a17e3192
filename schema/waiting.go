package schema

import (
	"context"

	"duly.dev/duly/internal/core"
)

// Waiting implements Store.
func (r *reader) Waiting(ctx context.Context, as core.AsOf, agent string, afterNumber int64, limit int) ([]int64, error) {
	return numbers[int64](ctx, r, as, qWaiting, as.Partition, agent, afterNumber, limit)
}

// WaitingAgents implements Store. One statement finds the next agent, by the index: agents are few, while
// millions of tasks may wait for one.
func (r *reader) WaitingAgents(ctx context.Context, as core.AsOf) ([]string, error) {
	var all []string
	for last := ""; ; {
		next, err := numbers[string](ctx, r, as, qNextAgent, as.Partition, last)
		if err != nil || len(next) == 0 {
			return all, err
		}
		last = next[0]
		all = append(all, last)
	}
}

package schema

import "context"

// Waiting implements Store.
func (r *reader) Waiting(ctx context.Context, partition int, agent string, afterNumber int64, limit int) ([]int64, error) {
	return column[int64](ctx, r, qWaiting, partition, agent, afterNumber, limit)
}

// WaitingAgents implements Store. It goes from one agent to the next: there are
// few, and may be a million tasks that wait for one.
func (r *reader) WaitingAgents(ctx context.Context, partition int) ([]string, error) {
	var all []string
	for last := ""; ; {
		next, err := column[string](ctx, r, qNextAgent, partition, last)
		if err != nil || len(next) == 0 {
			return all, err
		}
		last = next[0]
		all = append(all, last)
	}
}

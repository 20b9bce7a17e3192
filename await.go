package duly

import (
	"context"
	"errors"
	"fmt"

	"duly.dev/duly/internal/quickjson"
)

// ErrNotProcessed is what [PlanWithResult.Await] answers about a task that ended otherwise, by errors.Is.
var ErrNotProcessed = errors.New("not processed")

// Await waits for the end of a task and gives its result. Errors: [ErrNotProcessed], with the state, the step and the
// reason; a result of another type; those of [Client.Watch] and [Client.Get].
func (p *PlanWithResult[In, Out]) Await(ctx context.Context, c *Client, id string, options ...WatchOption) (Out, error) {
	var out Out
	what := operation{"await", fmt.Sprintf("task %s of type %s", id, p.spec.Name)}
	for status, err := range c.Watch(ctx, p.spec.Name, id, options...) {
		switch {
		case err != nil:
			return out, what.failed(err)
		case status.State == StateProcessed || !status.State.Ended():
		case status.Step != "":
			return out, what.failed(fmt.Errorf("%w: %s because of step %s: %s", ErrNotProcessed, status.State, status.Step, status.Error))
		default:
			return out, what.failed(fmt.Errorf("%w: %s: %s", ErrNotProcessed, status.State, status.Error))
		}
	}
	task, err := c.Get(ctx, p.spec.Name, id)
	if err != nil {
		return out, what.failed(err)
	}
	if err := quickjson.Unmarshal(task.Result, &out); err != nil {
		return out, what.failed(fmt.Errorf("its result: %w", err))
	}
	return out, nil
}

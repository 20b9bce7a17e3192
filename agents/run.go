package agents

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stopMax is how long Run waits, after it has cancelled the handlers that outlived
// the drain, for them to return.
const stopMax = time.Second

// Run serves the registered steps with the commands of source until ctx ends.
// Then it takes no more, finishes the commands in flight within DrainMax, cancels
// the rest and answers it 503. It returns an error when the source failed, or when
// handlers that ignore their contexts were still running at the end.
func (r *Runtime) Run(ctx context.Context, source Source) error {
	if len(r.agents) == 0 {
		return errors.New("agent serves no step")
	}
	if r.running.Swap(true) {
		return errors.New("agent runs already")
	}
	defer r.running.Store(false)

	// Work outlives ctx, which only ends the intake.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	d := r.newDispatcher(work)
	err := source.Serve(ctx, r.Agents(), d.accept)
	if err != nil {
		err = fmt.Errorf("agents %v: %w", r.agents, err)
	}
	d.drain()
	left := d.wait(r.config.DrainMax)
	if left > 0 {
		cancel()
		left = d.wait(stopMax)
	}
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("agents %v: %d commands still at work after the drain", r.agents, left))
	}
	return err
}

package httpagent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/agents"
)

// Run serves the agents of the file on a connection, which stays the caller's to close, until ctx ends; then they take no
// new command and finish those that run. Options are those of [duly.NewAgent]; how many commands run and wait, and how
// often they are tried, is the file's. An error is that of one of the agents, after which all have ended.
func (a *Agents) Run(ctx context.Context, nc *nats.Conn, options ...duly.AgentOption) error {
	defer func() {
		for _, s := range a.services {
			s.close()
		}
	}()
	type room struct{ running, waiting int }
	served := map[room]*duly.Agent{}
	for i := range a.agents {
		of := &a.agents[i]
		at := room{of.running, of.waiting}
		if served[at] == nil {
			// A retry of the runtime's would be one around those of the service.
			one, err := duly.NewAgent(nc, append(options[:len(options):len(options)], duly.Running(at.running), duly.Waiting(at.waiting), duly.Retries(0))...)
			if err != nil {
				return err
			}
			served[at] = one
		}
		if err := of.register(served[at].Runtime()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, len(served))
	for _, one := range served {
		wg.Go(func() {
			if err := one.Run(ctx); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// register has the steps of an agent served.
func (a *agent) register(r *agents.Runtime) error {
	for i := range a.steps {
		s := &a.steps[i]
		handlers := agents.Handlers{Do: s.do.do}
		if s.undo != nil {
			handlers.Undo = s.undo.takeBack
		}
		if err := r.Register(a.name, s.name, handlers); err != nil {
			return fmt.Errorf("agents file: %w", err)
		}
		if s.probe == nil {
			continue
		}
		if err := r.RegisterProbe(a.name, s.name, s.probe.probe); err != nil {
			return fmt.Errorf("agents file: %w", err)
		}
	}
	return nil
}

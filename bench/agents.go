package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// agentSettings say how the drone example's agents and mock services run.
type agentSettings struct {
	NATSURL string
	Seed    uint64
	Scale   float64 // of the reference latencies; 0: answers at once
	Single  bool    // one command a NATS message only
	Waiting bool    // handlers wait for the services on goroutines of their own
	Profile string
}

// agentsRequest asks the agents to close the books.
type agentsRequest struct {
	AcceptedFile string // ids that were accepted, one a line
	Database     string // URL of the state store
}

// booksClosed is what the checker found.
type booksClosed struct {
	Report drone.Report
}

func runAgents(ctx context.Context, p *part) error {
	var s agentSettings
	if ok, err := p.read(&s); !ok || err != nil {
		return err
	}
	services, err := drone.NewServices(drone.ServiceOptions{Seed: s.Seed, Scale: s.Scale})
	if err != nil {
		return err
	}
	nc, err := nats.Connect(s.NATSURL, nats.Name("bench-agents"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect the agents: %w", err)
	}
	defer nc.Close()
	options := []duly.AgentOption{duly.Running(16384), duly.Waiting(1 << 17), duly.Drain(5 * time.Second)}
	if s.Single {
		options = append(options, duly.SingleCommands())
	}
	var backend drone.Backend = services
	if s.Waiting {
		backend = struct{ drone.Backend }{services} // hides that it can call back
	}
	agent, err := drone.NewAgent(nc, drone.NewWorkflow(drone.PlanOptions{}), backend, options...)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- agent.Run(work) }()
	stopProfile, err := profile(s.Profile)
	if err == nil {
		err = p.out.Encode(struct{}{})
	}
	if err == nil {
		err = closeBooks(ctx, p, services)
	}
	stop()
	return errors.Join(err, stopProfile(), <-done)
}

// closeBooks answers requests for the check until the input ends.
func closeBooks(ctx context.Context, p *part, services *drone.Services) error {
	for {
		var w agentsRequest
		ok, err := p.read(&w)
		if !ok || err != nil {
			return err
		}
		closed, err := check(ctx, &w, services)
		if err != nil {
			return err
		}
		if err := p.out.Encode(closed); err != nil {
			return err
		}
	}
}

// check compares the books of the services with the state store.
func check(ctx context.Context, w *agentsRequest, services *drone.Services) (*booksClosed, error) {
	if err := services.Settle(ctx); err != nil {
		return nil, err
	}
	accepted, err := readLines(w.AcceptedFile)
	if err != nil {
		return nil, err
	}
	store, err := dialects.Open(ctx, w.Database, schema.Options{MaxConns: 2, Timeout: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	audit, err := store.Books(ctx)
	if err != nil {
		return nil, err
	}
	outcomes := drone.OutcomesOf(audit.States)
	for _, twice := range audit.DoneTwice {
		outcomes.AddDone(twice.Task, drone.DoneRows{Step: twice.Step, Round: twice.Round, Rows: twice.Rows})
	}
	return &booksClosed{Report: services.Books().Check(accepted, outcomes)}, nil
}

func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("accepted ids: %w", err)
	}
	defer f.Close()
	var lines []string
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		lines = append(lines, scan.Text())
	}
	return lines, scan.Err()
}

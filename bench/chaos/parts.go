package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/rpc"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/node"
)

// agentsPart are those of the agents.
type agentsPart struct {
	NATSURL string
	Desk    string // socket of the services
}

// runPart runs one part of a round in this process until it is told to end.
func runPart(ctx context.Context, args []string) error {
	if args[0] == partClock {
		return serveClock(ctx, args[1:])
	}
	if len(args) != 2 {
		return fmt.Errorf("part %s: want its settings", args[0])
	}
	if args[0] == partWork {
		return serveWork(ctx, args[1])
	}
	var s agentsPart
	if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
		return fmt.Errorf("part %s: %w", args[0], err)
	}
	return serveAgents(ctx, &s)
}

// newPartLog is the log of a part: as a node's.
func newPartLog() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// serveClock is `duly serve` with a clock that is wrong by the first argument. Nothing can be
// put between a Go program and the clock of its machine, which all processes here go by.
func serveClock(ctx context.Context, args []string) error {
	if len(args) < 1 {
		return errors.New("clock: want by how much it is wrong")
	}
	off, err := time.ParseDuration(args[0])
	if err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	var config config.Config
	parser, err := kong.New(&config)
	if err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	if _, err := parser.Parse(args[1:]); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	config.Now = func() time.Time { return time.Now().Add(off) }
	n, err := node.Open(ctx, config, newPartLog())
	if err != nil {
		return err
	}
	return errors.Join(n.Run(ctx), n.Close())
}

func serveAgents(ctx context.Context, s *agentsPart) error {
	client, err := rpc.Dial("unix", s.Desk)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	defer client.Close()
	return runAgent(ctx, s.NATSURL, func(nc *nats.Conn, options ...duly.AgentOption) (*duly.Agent, error) {
		a, err := drone.NewAgent(nc, newFlow(), remote{client}, options...)
		if err != nil {
			return nil, err
		}
		return a, serveBounded(a, remote{client})
	})
}

// runAgent connects, makes an agent and runs it until ctx ends.
func runAgent(ctx context.Context, url string, build func(*nats.Conn, ...duly.AgentOption) (*duly.Agent, error)) error {
	log := newPartLog()
	own := ground.NewFolding(log.Handler()) // what is said here and not by an agent; what it holds at the end is dropped
	nc, err := nats.Connect(url, nats.Name("chaos-agents"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(2*time.Second), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			slog.New(own).Warn("NATS reports an error", "error", err)
		}))
	if err != nil {
		return fmt.Errorf("connect the agents: %w", err)
	}
	defer nc.Close()
	agent, err := build(nc, duly.Running(8192), duly.Waiting(1<<16), duly.Drain(5*time.Second), duly.Log(log))
	if err != nil {
		return err
	}
	if err := agent.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		log.Error("the agents end", "error", err)
		return fmt.Errorf("agents: %w", err)
	}
	return nil
}

// callBy is a step's complete-by: short, because whatever a fault swallows is waited
// for so long; and long enough for a machine with other work.
const callBy = 2 * time.Second

// callGrace is how long a call that was given up may still take effect, by the
// plan; the mock services keep to it only as a rule, for their tombstones' sake.
const callGrace = callBy / 4

// newFlow is the plan of every round.
func newFlow() *drone.Workflow {
	return drone.NewWorkflow(drone.PlanOptions{CompleteBy: callBy, Grace: callGrace, Backoff: callBy / 20, BackoffCap: callBy / 2})
}

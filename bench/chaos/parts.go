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

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/examples/drone"
)

// natsPart are the settings of a NATS server in a process of its own.
type natsPart struct {
	Dir     string
	Port    int
	Name    string
	Cluster *natsserver.Cluster
}

// agentsPart are those of the agents.
type agentsPart struct {
	NATSURL string
	Desk    string // socket of the services
}

// runPart runs one part of a round in this process until it is told to end.
func runPart(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("part %s: want its settings", args[0])
	}
	if args[0] == partNATS {
		var s natsPart
		if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
			return fmt.Errorf("part %s: %w", args[0], err)
		}
		return serveNATS(ctx, &s)
	}
	var s agentsPart
	if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
		return fmt.Errorf("part %s: %w", args[0], err)
	}
	return serveAgents(ctx, &s)
}

func serveNATS(ctx context.Context, s *natsPart) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	server, err := natsserver.Start(natsserver.Options{
		Dir: s.Dir, Port: s.Port, Name: s.Name, Cluster: s.Cluster, Logger: log, Ready: time.Minute,
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return server.Shutdown()
}

func serveAgents(ctx context.Context, s *agentsPart) error {
	client, err := rpc.Dial("unix", s.Desk)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	defer client.Close()
	nc, err := nats.Connect(s.NATSURL, nats.Name("chaos-agents"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(2*time.Second), nats.RetryOnFailedConnect(true))
	if err != nil {
		return fmt.Errorf("connect the agents: %w", err)
	}
	defer nc.Close()
	agent, err := drone.NewAgent(nc, newFlow(), remote{client}, duly.Running(8192), duly.Waiting(1<<16), duly.Drain(5*time.Second))
	if err != nil {
		return err
	}
	if err := agent.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
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

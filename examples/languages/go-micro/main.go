// Program go-micro is an agent without Duly's library: a NATS micro service that charges cards, in PostgreSQL.
//
//	go run . DATABASE_URL [AGENT]       NATS_URL, DULY_NAMESPACE
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "go-micro:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) < 2 {
		return errors.New("usage: go-micro DATABASE_URL [AGENT]")
	}
	name := "payment.charge"
	if len(os.Args) > 2 {
		name = os.Args[2]
	}
	pool, err := pgxpool.New(context.Background(), os.Args[1])
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer pool.Close()
	ledger, err := newLedger(ctx, pool)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(or("NATS_URL", nats.DefaultURL), nats.Name(name), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	agent := newAgent(ledger)
	service, err := serve(nc, agent, or("DULY_NAMESPACE", "duly"), name)
	if err != nil {
		return err
	}
	fmt.Println("agent", name, "is ready")
	<-ctx.Done()
	err = service.Stop()
	agent.stop()
	return errors.Join(err, nc.FlushTimeout(flushTime))
}

const flushTime = 2 * time.Second // for the last answers

// serve adds the micro service. Its name and metadata are what `duly agents` finds it by: without duly_batch commands come one
// by one.
func serve(nc *nats.Conn, agent *agent, namespace, name string) (micro.Service, error) {
	service, err := micro.AddService(nc, micro.Config{
		Name:     namespace + "-" + strings.ReplaceAll(name, ".", "_"),
		Version:  "1.0.0",
		Metadata: map[string]string{"duly_agent": name, "duly_wire": "1"},
	})
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	for verb, work := range map[string]work{"do": agent.charge, "undo": agent.refund, "probe": agent.probe} {
		err := service.AddEndpoint(verb, agent.take(work),
			micro.WithEndpointSubject(namespace+"."+verb+"."+name),
			micro.WithEndpointQueueGroup("q")) // each command comes to one instance
		if err != nil {
			return nil, fmt.Errorf("agent %s: %s: %w", name, verb, err)
		}
	}
	return service, nc.Flush()
}

// or is an environment variable, or what it is without.
func or(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}

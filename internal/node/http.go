package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nuid"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/bus"
	"duly.dev/duly/internal/health"
)

// Times of the HTTP server: a slow client must not hold it up.
const (
	headerTimeout = 5 * time.Second
	readWriteMax  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	headerBytes   = 64 << 10
)

// serveHTTP serves health, and the API where the node runs ingest, until ctx
// ends.
func (n *Node) serveHTTP(ctx context.Context) error {
	handler, err := n.handler()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", n.cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("http-addr %s: %w", n.cfg.HTTPAddr, err)
	}
	// The port may have been left to the system.
	n.log.Info("http is up", "addr", listener.Addr().String())
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readWriteMax, WriteTimeout: readWriteMax,
		IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
	}
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Drain)
		defer cancel()
		ended <- server.Shutdown(bounded)
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server: %w", err)
	}
	return <-ended
}

func (n *Node) handler() (http.Handler, error) {
	mux := http.NewServeMux()
	probes := health.Handler(n.checks()...)
	for _, path := range HealthPaths {
		mux.Handle(path, probes)
	}
	if !n.cfg.Has(RoleIngest) {
		return mux, nil
	}
	asks, err := n.newAsks()
	if err != nil {
		return nil, err
	}
	api, err := ingest.NewAPI(ingest.APIConfig{Partitions: n.cfg.Partitions, PartitionOf: bus.PartitionOf, NewID: nuid.Next},
		n, doorReader{n.store}, asks, n.log)
	if err != nil {
		return nil, err
	}
	mux.Handle("/", api)
	return mux, nil
}

// Submit implements ingest.Submitter: the door that is open now.
func (n *Node) Submit(req ingest.Request) {
	door := n.currentDoor()
	if door == nil {
		req.Answer(ingest.Answer{Task: req.ID, Err: &ingest.Refusal{Code: 503, Description: "the door is not open yet", Retry: time.Second}})
		return
	}
	door.in.Submit(req)
}

// checks are what readiness means for the node's roles.
func (n *Node) checks() []health.Check {
	checks := []health.Check{
		{Name: "nats", Probe: func(context.Context) error {
			if !n.conn.Connected() {
				return errors.New("no connection")
			}
			return nil
		}},
		{Name: "database", Probe: n.store.Ping},
	}
	if n.cfg.Has(RoleIngest) {
		checks = append(checks, health.Check{Name: RoleIngest, Probe: func(context.Context) error {
			if n.currentDoor() == nil {
				return errors.New("the door is not open")
			}
			return nil
		}})
	}
	if n.cfg.Has(RoleScheduler) {
		checks = append(checks, health.Check{Name: RoleScheduler, Probe: func(context.Context) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.own == nil {
				return errors.New("not running")
			}
			return nil
		}})
	}
	return checks
}

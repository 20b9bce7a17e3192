// Package agentrole is the role agents of `duly serve`: agents of HTTP services on a connection of their own. It is no part
// of a node: it needs no database, and the rights of its agents alone.
package agentrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/agents/httpagent"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/health"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/redact"
)

// Bounds of the HTTP server of health.
const (
	requestMax     = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	headerBytes    = 16 << 10
	connectionsMax = 1024
)

// Role is the role before it runs.
type Role struct {
	cfg    config.Config
	log    *slog.Logger
	agents *httpagent.Agents
}

// Open reads the file of agents. Error: a setting that cannot be; every mistake in the file, with line and column.
func Open(cfg config.Config, log *slog.Logger) (*Role, error) {
	cfg, err := cfg.Resolve()
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	all, err := httpagent.Load(cfg.Agents)
	if err != nil {
		return nil, err
	}
	log = slog.New(redact.SecretsOf(cfg.NATSURL).Handler(log.Handler())).With("node", cfg.NodeName)
	return &Role{cfg, log, all}, nil
}

// Run serves the agents until ctx ends, and then finishes the commands that run, within the drain. As the only role of its
// process it serves health, too.
func (r *Role) Run(ctx context.Context) error {
	nc, err := natsbus.Connect(ctx, r.cfg.NATS(r.cfg.NodeName, "", r.log)) // the agents have the namespace
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var failed error
	if r.cfg.OnlyAgents() && r.cfg.HTTPAddr != "" {
		wg.Go(func() {
			if failed = r.serveHealth(ctx, nc); failed != nil {
				cancel()
			}
		})
	}
	r.log.Info("serving agents", "agents", r.agents.Names())
	err = r.agents.Run(ctx, nc, duly.Namespace(r.cfg.Namespace), duly.Instance(r.cfg.NodeName), duly.Variant(r.cfg.AgentsVariant), duly.Drain(r.cfg.Drain), duly.Log(r.log))
	cancel()
	wg.Wait()
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("%s: %w", config.RoleAgents, err)
	}
	return nil
}

// serveHealth answers whether the process can work, and nothing else.
func (r *Role) serveHealth(ctx context.Context, nc *nats.Conn) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("http-addr %s: %w", r.cfg.HTTPAddr, err)
	}
	r.log.Info("http is up", "addr", listener.Addr().String())
	server := &http.Server{
		Handler: health.Handler(connected{nc}), ReadHeaderTimeout: requestMax, ReadTimeout: requestMax, WriteTimeout: requestMax,
		IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	auth.NewConnections(connectionsMax).Bound(server)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server: %w", err)
	}
	return nil
}

// connected is health.Source of a process that needs NATS alone.
type connected struct{ nc *nats.Conn }

// Ready implements health.Source.
func (c connected) Ready() []health.Failure {
	if c.nc.IsConnected() {
		return nil
	}
	reason := c.nc.LastError()
	if reason == nil {
		reason = nats.ErrDisconnected
	}
	return []health.Failure{{Name: "nats", Text: "there is no connection to NATS", Reason: reason.Error(), Since: time.Now()}}
}

// Live implements health.Source.
func (c connected) Live() []health.Failure { return nil }

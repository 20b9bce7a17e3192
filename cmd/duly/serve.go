package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/examples/shop"
	"duly.dev/duly/internal/agentrole"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
)

type serveCmd struct {
	config.Config `embed:""`
}

// Run runs roles until it is told to stop, and then drains.
func (c *serveCmd) Run(ctx context.Context, std streams) error {
	switch {
	case c.DatabaseURL == "" && !c.OnlyAgents():
		return misuse("database-url: none given; serve wants PostgreSQL or CockroachDB, postgres://… (`duly dev` has a database of its own)")
	case strings.HasPrefix(c.DatabaseURL, "sqlite:"):
		return misuse("database-url: SQLite serves one process (`duly dev`); serve wants PostgreSQL or CockroachDB, postgres://…")
	}
	c.Level, c.Version = new(slog.LevelVar), version
	log := newLog(std.err, c.Logs)
	node.TuneMemory(c.Memory)
	if !c.Has(config.RoleAgents) {
		return serveNode(ctx, c.Config, log)
	}
	agents, err := agentrole.Open(c.Config, log)
	if err != nil { // of a flag, or of a file that one names
		return useError{err}
	}
	if c.OnlyAgents() {
		return together(ctx, agents.Run, func(ctx context.Context) error { return tellSystemd(ctx, wellAgents, log) })
	}
	return together(ctx, agents.Run, func(ctx context.Context) error { return serveNode(ctx, c.WithoutAgents(), log) })
}

// portTaken adds to an error of a port that another program has which flag names another; others it returns as they are.
func portTaken(err error, flag string) error {
	// The NATS server tells its own as text.
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		return err
	}
	return errors.New(say.Of("cli.port-taken", "error", err, "flag", flag))
}

// serveNode runs the roles of a node until ctx ends.
func serveNode(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	n, err := node.Open(ctx, cfg, log)
	if err != nil {
		return err
	}
	log.Info("serving", "roles", cfg.Roles, "http", cfg.HTTPAddr)
	err = together(ctx, func(ctx context.Context) error { return portTaken(n.Run(ctx), "--http-addr") }, func(ctx context.Context) error { return tellSystemd(ctx, n.Health, log) })
	return errors.Join(err, n.Close())
}

// together runs all until ctx ends, or the first of them.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, run := range all {
		wg.Go(func() {
			defer cancel()
			errs[i] = run(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

type migrateCmd struct {
	DatabaseURL string `name:"database-url" env:"DATABASE_URL" required:"" help:"PostgreSQL 14+ or CockroachDB 24.1+: postgres://…"`
}

// Run brings the tables up to date.
func (c *migrateCmd) Run(ctx context.Context, std streams) error {
	if err := node.MigrateTelling(ctx, c.DatabaseURL, func(what string) { fmt.Fprintln(std.err, what) }); err != nil {
		return err
	}
	_, err := fmt.Fprintln(std.out, "the tables are up to date")
	return err
}

type renewCmd struct {
	DatabaseURL string `name:"database-url" env:"DATABASE_URL" required:"" help:"The copy: postgres://…"`
	Was         string `required:"" help:"The installation that it is a copy of; a wrong one is refused, and the right one named."`
}

// Run gives a copy of a database an id of its own.
func (c *renewCmd) Run(ctx context.Context, std streams) error {
	id, err := node.Renew(ctx, c.DatabaseURL, c.Was)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "installation %s, of no namespace yet\n", id)
	return err
}

type devCmd struct {
	DataDir  string `name:"data-dir" help:"Where to keep everything; without it a temporary directory, removed at the end."`
	Host     string `default:"127.0.0.1" help:"Address to listen on. All who reach another one than loopback may do everything: for a container whose ports are published on loopback."`
	Port     int    `default:"7310" help:"HTTP port."`
	NATSPort int    `name:"nats-port" default:"4222" help:"NATS port; 0: any free one."`
	Store    string `default:"sqlite" help:"sqlite, postgres (a throwaway server of this machine's binaries) or a database URL."`
	Demo     bool   `help:"Add the drone-delivery plan with its agents, and a shop whose orders come by themselves and meet trouble."`

	Namespace string `name:"namespace" env:"DULY_NAMESPACE" default:"duly" help:"What the names on NATS begin with."`

	config.Relayed `embed:""`
	config.Logs    `embed:""`
}

// Validate is kong's.
func (c *devCmd) Validate() error {
	for _, p := range []struct {
		flag string
		port int
	}{{"port", c.Port}, {"nats-port", c.NATSPort}} {
		if p.port < 0 || p.port > 65535 {
			return fmt.Errorf("%s: %d, want 0 (any free one) to 65535", p.flag, p.port)
		}
	}
	cfg := c.config()
	return cfg.Validate()
}

// config is that of its node.
func (c *devCmd) config() config.Config {
	cfg := demoConfig()
	cfg.NodeName, cfg.HTTPAddr, cfg.ReplyTo = "dev", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), []string{"_INBOX.", "status."}
	cfg.Insecure = !config.Loopback(cfg.HTTPAddr)
	cfg.Namespace, cfg.Level, cfg.BooksInterval, cfg.Relayed = c.Namespace, c.Level, booksOfDev, c.Relayed
	return cfg
}

// Run runs everything in one process until it is told to stop.
func (c *devCmd) Run(ctx context.Context, std streams) error {
	c.Level = new(slog.LevelVar)
	log := newLog(std.err, c.Logs)
	node.TuneMemory(0)
	dir := c.DataDir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "duly-dev-"); err != nil {
			return fmt.Errorf("temporary directory: %w", err)
		}
		defer os.RemoveAll(dir)
	}
	s, err := dev.Start(ctx, dev.Options{Dir: dir, Store: c.Store, NATSHost: c.Host, NATSPort: c.NATSPort, Config: c.config(), Log: log})
	if err != nil {
		return portTaken(err, "--nats-port")
	}
	return errors.Join(portTaken(c.serve(ctx, std, s, dir), "--port"), s.Close())
}

func (c *devCmd) serve(ctx context.Context, std streams, s *dev.System, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	failed := make(chan error, 2)
	if c.Demo {
		for _, example := range []func(ctx context.Context, url, namespace, dir string) error{serveDrone, serveShop} {
			wg.Go(func() {
				if err := example(ctx, s.NATSURL, c.Namespace, dir); err != nil && ctx.Err() == nil {
					failed <- err
					cancel()
				}
			})
		}
	}
	wg.Go(func() {
		select {
		case addr := <-s.Node.Listens():
			if s.AwaitOwned(ctx) == nil {
				c.greet(std, s, dir, addr)
			}
		case <-ctx.Done():
		}
	})
	err := s.Run(ctx)
	select {
	case drone := <-failed:
		err = errors.Join(drone, err)
	default:
	}
	return err
}

// greet says that all is up, and where; addr is that of the HTTP server.
func (c *devCmd) greet(std streams, s *dev.System, dir, addr string) {
	_, port, _ := net.SplitHostPort(addr)
	http := "http://" + net.JoinHostPort("127.0.0.1", port)
	fmt.Fprintf(std.out, "duly is up\n  http  %s\n  nats  %s\n  data  %s\n  open  %s/console/\n", http, s.NATSURL, dir, http)
	if c.DataDir == "" {
		fmt.Fprintln(std.out, "        (removed at the end; --data-dir keeps it)")
	}
	var set []string
	for _, x := range []struct{ name, is, unsaid string }{{"DULY_URL", http, defaultServer}, {"NATS_URL", s.NATSURL, defaultNATS}, {"DULY_NAMESPACE", c.Namespace, wire.DefaultNamespace}} {
		if x.is != x.unsaid {
			set = append(set, x.name+"="+x.is)
		}
	}
	if len(set) > 0 {
		fmt.Fprintf(std.out, "for the commands below\n  export %s\n", strings.Join(set, " "))
	}
	if c.Demo {
		fmt.Fprintf(std.out, "try\n  duly failures list\n  duly submit delivery/d-1 '%s'\n  duly get delivery/d-1\n", sampleDelivery)
	} else {
		fmt.Fprintln(std.out, "try\n  duly dev --demo      (adds a plan and agents to submit to)\n  duly list")
	}
}

// defaultNATS is where programs look for NATS unless told otherwise.
const defaultNATS = "nats://127.0.0.1:4222"

const sampleDelivery = `{"deliveryId":"d-1","ownerId":"o-1","pickupLocation":"A","dropOffLocation":"B","confirmationRequired":"None","packageInfo":{"packageId":"p-1","size":"Small","weight":1}}`

// Times of the shop of `duly dev --demo`.
const (
	orderEvery = 400 * time.Millisecond
	mendAfter  = 2 * time.Minute // until the payment gateway is back, so that failed orders can be mended
	booksOfDev = 30 * time.Second
)

// serveShop stores the plans of a shop, serves its agents and submits its orders.
func serveShop(ctx context.Context, url, namespace, dir string) error {
	nc, err := nats.Connect(url, nats.Name("shop"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("shop example: %w", err)
	}
	defer nc.Close()
	s := shop.New()
	if err := s.Keep(dir); err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(s.Run(ctx, nc, namespace, orderEvery, mendAfter, slog.New(slog.DiscardHandler)), s.Close())
}

// serveDrone stores the plans of a delivery and serves its agents.
func serveDrone(ctx context.Context, url, namespace, dir string) (err error) {
	nc, err := nats.Connect(url, nats.Name("drone"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("drone example: %w", err)
	}
	defer nc.Close()
	services, err := drone.NewServices(drone.ServiceOptions{Seed: 1, Scale: 1})
	if err != nil {
		return err
	}
	if err := services.Keep(filepath.Join(dir, "drone.books")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Close()) }()
	flow := drone.NewWorkflow(drone.PlanOptions{})
	options := []duly.AgentOption{duly.Namespace(namespace)}
	for name, kept := range services.Books().ByAgent() {
		options = append(options, duly.WithBooks(name, kept))
	}
	agent, err := drone.NewAgent(nc, flow, services, options...)
	if err != nil {
		return err
	}
	client, err := duly.NewClient(nc, duly.Namespace(namespace))
	if err != nil {
		return err
	}
	doors, err := drone.NewDoors(nc, flow, duly.Namespace(namespace))
	if err != nil {
		return err
	}
	if err := flow.Rescheduling.Serve(agent, doors); err != nil {
		return err
	}
	if err := flow.Apply(ctx, client); err != nil {
		return err
	}
	return agent.Run(ctx)
}

package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/wire"
)

// The stores that Options.Store knows by a word.
const (
	StoreSQLite   = "sqlite"
	StorePostgres = "postgres"
)

// Options of Start.
type Options struct {
	Dir      string // where everything is kept; locked while in use
	Store    string // StoreSQLite, StorePostgres (a throwaway server) or a database URL
	NATSHost string // empty: loopback
	NATSPort int    // 0: any free one
	Config   config.Config
	Log      *slog.Logger
}

// Config is that of a node in one process with all roles, in so many partitions: what
// bounds or paces work is as `duly serve` has it.
func Config(name string, partitions int) config.Config {
	return config.Config{
		Roles: config.Roles, NodeName: name, Partitions: partitions, Shards: 2, InFlight: 4096, AgentWindow: 2048, BreakerShare: 50,
		ScanInterval: time.Second, Lease: 6 * time.Second, Drain: 5 * time.Second,
		ReplyTo: wire.DefaultReplyPrefixes, StreamMaxAge: time.Hour, StreamReplicas: 1,
		Fair: config.Fair{TenantLabel: "tenant"},
	}
}

// System is a running NATS server and store with a node that has not begun.
type System struct {
	NATSURL string
	Node    *node.Node

	log      *slog.Logger
	lock     *flock.Flock
	nats     *natsserver.Server
	pg       *localpg.Cluster
	restarts atomic.Int64
	stopMend context.CancelFunc // nil: mend does not run
	mending  sync.WaitGroup
}

// A server that has been started again is left alone for mendRest: a disk that is full
// fails it again. mendLook is between two looks.
const (
	mendLook = time.Second
	mendRest = 10 * time.Second
)

// ErrInUse says that another process has the data directory.
var ErrInUse = errors.New("data directory is in use by another process")

// Start starts the servers, brings the tables up to date and connects the node.
// The roles begin with Run or Keep.
func Start(ctx context.Context, o Options) (*System, error) {
	s := &System{log: o.Log}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *System) start(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	lock := flock.New(filepath.Join(o.Dir, "duly.lock"))
	held, err := lock.TryLock()
	if err != nil {
		return fmt.Errorf("lock data directory %s: %w", o.Dir, err)
	}
	if !held {
		return fmt.Errorf("%s: %w", o.Dir, ErrInUse)
	}
	s.lock = lock
	natsDir := filepath.Join(o.Dir, "nats")
	if s.nats, err = natsserver.Start(natsserver.Options{Dir: natsDir, Host: o.NATSHost, Port: o.NATSPort, Logger: o.Log}); err != nil {
		return err
	}
	s.NATSURL = s.nats.ClientURL()
	cfg := o.Config
	cfg.NATSURL, cfg.NATSDir, cfg.SyncAlways = s.NATSURL, natsDir, s.nats.SyncAlways()
	if cfg.DatabaseURL, err = s.store(ctx, o); err != nil {
		return err
	}
	if err := node.Migrate(ctx, cfg.DatabaseURL); err != nil {
		return err
	}
	if s.Node, err = node.Open(ctx, cfg, o.Log); err != nil {
		return err
	}
	mend, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopMend = stop
	s.mending.Go(func() { s.mend(mend) })
	return nil
}

// mend starts the NATS server again when one of its streams met a write error, or when it
// started with much less room than its disk has now: here there is no orchestrator that
// would. It waits until the disk has room.
func (s *System) mend(ctx context.Context) {
	look := time.NewTicker(mendLook)
	defer look.Stop()
	var tried time.Time
	failed := false // the last start, so that the server is down
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		broken := s.Node.WriteError()
		if !failed && broken == nil && !s.nats.Cramped() || time.Since(tried) < mendRest || !s.nats.HasRoom() {
			continue
		}
		switch {
		case failed:
		case broken != nil:
			s.log.Warn("the NATS server in this process is started again", "error", broken)
		default:
			s.log.Info("the NATS server in this process is started again: its disk has more room now")
		}
		err := s.nats.Restart()
		if err != nil && !failed {
			s.log.Error("the NATS server in this process does not start, and is tried again", "every", mendRest, "error", err)
		}
		if err == nil && failed {
			s.log.Info("the NATS server in this process has started")
		}
		tried, failed = time.Now(), err != nil
	}
}

func (s *System) store(ctx context.Context, o Options) (string, error) {
	switch o.Store {
	case StoreSQLite, "":
		return "sqlite:" + filepath.Join(o.Dir, "duly.db"), nil
	case StorePostgres:
		var err error
		if s.pg, err = localpg.Start(localpg.Options{}); err != nil {
			return "", fmt.Errorf("throwaway PostgreSQL: %w", err)
		}
		return s.pg.NewDatabase(ctx)
	}
	return o.Store, nil
}

// ownLook is how often AwaitOwned looks.
const ownLook = time.Millisecond

// AwaitOwned waits until the node holds every partition, or fails when ctx ends.
func (s *System) AwaitOwned(ctx context.Context) error {
	look := time.NewTicker(ownLook)
	defer look.Stop()
	for !s.Node.OwnsAll() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("the node does not hold all its partitions: %w", ctx.Err())
		}
	}
	return nil
}

// Run runs all roles until ctx ends, then drains.
func (s *System) Run(ctx context.Context) error { return s.Node.Run(ctx) }

// Keep runs each role until ctx ends and ends and begins it again every so often:
// every second time without a drain, as if it had crashed.
func (s *System) Keep(ctx context.Context, every time.Duration) error {
	var wg sync.WaitGroup
	errs := make([]error, len(config.Roles))
	for i, role := range config.Roles {
		wg.Go(func() {
			for life := 0; ctx.Err() == nil && errs[i] == nil; life++ {
				if life > 0 {
					s.restarts.Add(1)
				}
				// The roles do not fall over all at once.
				span := every + time.Duration(i)*every/time.Duration(2*len(config.Roles))
				lived, cancel := context.WithTimeout(ctx, span)
				errs[i] = s.Node.RunRole(lived, role, life%2 == 1)
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Restarts is how many times Keep has begun a role again.
func (s *System) Restarts() int { return int(s.restarts.Load()) }

// Close ends everything that Start began.
func (s *System) Close() error {
	var errs []error
	if s.stopMend != nil {
		s.stopMend()
		s.mending.Wait()
	}
	if s.Node != nil {
		errs = append(errs, s.Node.Close())
	}
	if s.nats != nil {
		errs = append(errs, s.nats.Shutdown())
	}
	if s.pg != nil {
		errs = append(errs, s.pg.Stop())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
	}
	return errors.Join(errs...)
}

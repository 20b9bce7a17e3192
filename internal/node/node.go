package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/bus"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// Node is one process of Duly: its connections, and the roles that use them.
type Node struct {
	cfg          Config
	log          *slog.Logger
	conn         *bus.Conn
	store        schema.Store
	installation string // its id, drawn once, as the streams carry it too
	plans        *planCache
	unguard      context.CancelFunc // ends guarding; nil before it has begun
	guarded      sync.WaitGroup

	mu   sync.Mutex
	door *openDoor // the ingest role, while it runs
	own  owner     // the scheduler role, while it runs
}

// owner is what health asks of the scheduler role.
type owner interface{ Owned() int }

// startTimeout bounds the setting up of streams, setupTimeout one try of it.
const (
	startTimeout = 30 * time.Second
	setupTimeout = 5 * time.Second
)

// Migrate brings the tables of a database up to this version.
func Migrate(ctx context.Context, url string) error { return MigrateTelling(ctx, url, nil) }

// MigrateTelling is Migrate; tell hears what it waits for.
func MigrateTelling(ctx context.Context, url string, tell func(string)) error {
	store, err := schema.Open(ctx, url, schema.Options{MaxConns: 2, Tell: tell})
	if err != nil {
		return err
	}
	return errors.Join(store.Migrate(ctx), store.Close())
}

// Open connects to NATS and the database and sets the streams up. NATS may come
// up later: it is waited for until ctx ends. The tables must be there: see
// Migrate.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	n := &Node{cfg: cfg, log: log.With("node", cfg.NodeName)}
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) open(ctx context.Context) error {
	var err error
	if n.store, err = schema.Open(ctx, n.cfg.DatabaseURL, schema.Options{MaxConns: n.cfg.Shards + 6}); err != nil {
		return err
	}
	n.log.Info("connected to the database", "dialect", n.store.Dialect(), "version", n.store.Version())
	if err := n.store.CheckVersion(ctx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if err := n.store.Partitions(ctx, n.cfg.Partitions); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if n.installation, err = n.store.Installation(ctx, cmp.Or(n.cfg.Namespace, bus.DefaultNamespace)); err != nil {
		return err
	}
	n.plans = newPlanCache(n.store, n.log)
	if n.conn, err = bus.Dial(ctx, bus.Options{
		URL: n.cfg.NATSURL, Name: n.cfg.NodeName, Context: n.cfg.NATSContext, CredentialsFile: n.cfg.NATSCreds, Logger: n.log,
		Namespace: n.cfg.Namespace,
	}); err != nil {
		return err
	}
	ready, err := n.setup(ctx)
	if err != nil {
		return err
	}
	n.log.Info("streams are ready", "identity", ready.Identity, "sync", ready.Sync)
	guard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.unguard = cancel
	n.guarded.Go(func() { n.conn.Guard(guard) })
	return nil
}

// streamConfig is how the streams are to be.
func (n *Node) streamConfig() bus.StreamConfig {
	return bus.StreamConfig{
		Partitions: n.cfg.Partitions, Replicas: n.cfg.StreamReplicas, MaxAge: n.cfg.StreamMaxAge, MaxBytes: n.cfg.StreamMaxBytes,
		ControlBytes: n.cfg.StreamControlMaxBytes, EventsBytes: n.cfg.StreamEventsMaxBytes, DeadBytes: n.cfg.StreamDeadMaxBytes,
		Lease: n.cfg.Lease, SyncAlways: n.cfg.SyncAlways, Installation: n.installation,
	}
}

// setup makes the streams, or finds them. A request that comes while a cluster
// elects a leader is never answered, so it is asked again.
func (n *Node) setup(ctx context.Context) (bus.Ready, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for told := false; ; told = true {
		try, done := context.WithTimeout(ctx, setupTimeout)
		ready, err := n.conn.Setup(try, n.streamConfig())
		done()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return ready, err
		}
		if !told {
			n.log.Info("the streams are not ready yet; trying again", "error", err)
		}
	}
}

// Close ends the connections. The roles must have ended.
func (n *Node) Close() error {
	if n.unguard != nil {
		n.unguard()
		n.guarded.Wait()
	}
	if n.conn != nil {
		n.conn.Close()
	}
	if n.plans != nil {
		n.plans.wg.Wait()
	}
	if n.store != nil {
		return n.store.Close()
	}
	return nil
}

// Run runs the configured roles, and the HTTP server if there is an address,
// until ctx ends; then it drains. It ends early when a role fails.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, len(n.cfg.Roles)+1)
	start := func(name string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				errs <- fmt.Errorf("%s: %w", name, err)
				cancel()
			}
		})
	}
	for _, role := range n.cfg.Roles {
		start(role, func(ctx context.Context) error { return n.RunRole(ctx, role, false) })
	}
	if n.cfg.HTTPAddr != "" {
		start("http", n.serveHTTP)
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// RunRole runs one role until ctx ends. abrupt leaves out the drain, as if the
// process had been killed.
func (n *Node) RunRole(ctx context.Context, role string, abrupt bool) error {
	switch role {
	case RoleIngest:
		return n.runIngest(ctx)
	case RoleScheduler:
		return n.runScheduler(ctx, abrupt)
	case RoleSupervisor:
		return n.runSupervisor(ctx, abrupt)
	}
	return fmt.Errorf("role %q is not one of %s", role, strings.Join(Roles, ", "))
}

func now() core.Instant { return core.InstantOf(time.Now()) }

// EndedTasks is how many tasks have ended.
func (n *Node) EndedTasks(ctx context.Context) (int, error) {
	counts, err := n.store.Counts(ctx)
	if err != nil {
		return 0, err
	}
	ended := int64(0)
	for _, c := range counts {
		if c.State.Ended() {
			ended += c.Tasks
		}
	}
	return int(ended), nil
}

// OwnsAll reports whether this node holds every partition.
func (n *Node) OwnsAll() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.own != nil && n.own.Owned() == n.cfg.Partitions
}

// Audit reads all tasks for a check of the books.
func (n *Node) Audit(ctx context.Context) (schema.Audit, error) { return n.store.Audit(ctx) }

// random is safe for use by several goroutines.
func random() float64 { return rand.Float64() }

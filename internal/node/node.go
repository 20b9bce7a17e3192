package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/books"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/redact"
	"duly.dev/duly/internal/schedules"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
	"duly.dev/duly/supervisor"
)

// Node is one process of Duly: its connections, and the roles that use them.
type Node struct {
	cfg          config.Config
	log          *slog.Logger
	conn         *natsbus.Conn
	store        schema.Store
	installation string // its id, drawn once, as the streams carry it too
	plans        *planCache
	schemas      schemas
	unguard      context.CancelFunc // ends guarding; nil before it has begun
	guarded      sync.WaitGroup
	pair         *pairing    // nil: the database is this node's own
	unpaired     chan error  // why this node must end
	listens      chan string // the address of its HTTP server, once
	clock        *nodeClock
	lines        *ground.Folding // what log writes through

	ground      *ground.Ground
	reporters   map[string]ground.Reporter
	members     members
	reconnected time.Time                 // when the connection was last recreated for its subscriptions; of the probe of rights alone
	endBy       atomic.Pointer[time.Time] // when everything must have ended; nil: nothing ends

	leading leading // see probeLeader

	raiser *raiser
	told   ground.Sink // the log
	sender atomic.Pointer[alerts.Sender]

	reconciler atomic.Pointer[books.Reconciler] // of the role supervisor, while it runs
	schedules  atomic.Pointer[schedules.Runner] // of the role supervisor, while it runs

	observers *scheduler.Observers
	forecasts *forecasts
	agents    *operate.LiveAgents

	survey   survey
	requests telemetry.HTTP
	held     atomic.Pointer[schema.Held] // as of the last look; nil: not known
	tracer   *telemetry.Tracer           // nil: no one traces

	door atomic.Pointer[ingest.Ingest]     // the ingest role, while it runs
	sup  atomic.Pointer[supervisor.Runner] // the supervisor role, while it runs

	mu    sync.Mutex
	lease *natsbus.Lease // of the node, made by its first scheduler
	own   owner          // the scheduler role, while it runs

	relays []*outbox // of the role ingest, while it runs
}

// owner is what health asks of the scheduler role.
type owner interface {
	Owned() int
	Overloaded() bool
	Snapshot() scheduler.Snapshot
	Breakers() []core.Breaker
	Full(partition int) bool
	Waits(partition int) bool
}

// startTimeout bounds the setting up of streams, setupTimeout one try of it. Streams that
// another node is to make are looked for every setupAgain, for as long as it takes. lookTimeout
// bounds a look before it.
const (
	lookTimeout  = 2 * time.Second
	startTimeout = 30 * time.Second
	setupTimeout = 5 * time.Second
	setupAgain   = 500 * time.Millisecond
)

// Migrate brings the tables of a database up to this version.
func Migrate(ctx context.Context, url string) error { return MigrateTelling(ctx, url, nil) }

// MigrateTelling is Migrate; tell hears what it waits for.
func MigrateTelling(ctx context.Context, url string, tell func(string)) error {
	store, err := dialects.Open(ctx, url, schema.Options{MaxConns: 2, Tell: tell})
	if err != nil {
		return err
	}
	return errors.Join(store.Migrate(ctx), store.Close())
}

// Renew makes another installation of a copy of a database, which was one of the
// installation that is named. Error: nodes use it, so it is none.
func Renew(ctx context.Context, url, was string) (id string, err error) {
	store, err := dialects.Open(ctx, url, schema.Options{MaxConns: 2})
	if err != nil {
		return "", err
	}
	if err := store.CheckVersion(ctx); err != nil {
		return "", errors.Join(fmt.Errorf("database: %w", err), store.Close())
	}
	if err = unused(ctx, store, was); err == nil {
		id, err = store.Renew(ctx, was)
	}
	return id, errors.Join(err, store.Close())
}

// Open connects to NATS and the database and sets the streams up. NATS may come
// up later: it is waited for until ctx ends. The tables must be there: see
// Migrate.
func Open(ctx context.Context, cfg config.Config, log *slog.Logger) (*Node, error) {
	cfg, err := cfg.Resolve()
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	secrets := redact.SecretsOf(append([]string{cfg.DatabaseURL, cfg.NATSURL}, outboxURLs(&cfg)...)...)
	log = slog.New(secrets.Handler(log.Handler()))
	n := &Node{unpaired: make(chan error, 1), listens: make(chan string, 1), cfg: cfg, clock: newClock(cfg.Now), lines: ground.NewFolding(log.Handler())}
	n.raiser, n.told = newRaiser(cfg.NodeName), ground.LogSink{Log: log.With("node", cfg.NodeName)} // which does not need folding
	n.stand(ground.Sinks{n.told, n.raiser})
	n.log = slog.New(alertLines{n.lines, n.ground}).With("node", cfg.NodeName)
	n.ground.Hide(secrets)
	n.observers = scheduler.NewObservers(n.log, n.reportObserver)
	err = n.openTraces(ctx, secrets)
	if err == nil {
		err = n.open(ctx)
	}
	if err != nil {
		return nil, errors.Join(secrets.Error(err), n.Close())
	}
	return n, nil
}

func (n *Node) open(ctx context.Context) error {
	key, err := chainKeyOf(&n.cfg)
	if err != nil {
		return err
	}
	if n.store, err = dialects.Open(ctx, n.cfg.DatabaseURL, schema.Options{MaxConns: n.cfg.Shards + 6, Chain: n.cfg.Chain}); err != nil {
		return err
	}
	n.log.Info("connected to the database", "dialect", n.store.Dialect(), "version", n.store.Version())
	if err := n.store.CheckVersion(ctx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if err := n.store.Partitions(ctx, n.cfg.Partitions); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	namespace := cmp.Or(n.cfg.Namespace, wire.DefaultNamespace)
	if n.installation, err = n.store.Installation(ctx, namespace); err != nil {
		return err
	}
	n.forecasts = newForecasts(n)
	n.agents = &operate.LiveAgents{Flow: n.store, Instances: n.instances, Absent: n.absent, Pauses: n.store.Pauses, Breakers: n.store.Breakers, Now: n.now}
	n.plans = newPlanCache(n.store, n.log, func(err error) { n.report(condPlans, err) })
	links := n.cfg.NATS(n.cfg.NodeName, n.cfg.Namespace, n.log)
	links.Report, links.ReplyTo = n.report, n.cfg.ReplyTo
	if n.conn, err = natsbus.Dial(ctx, links); err != nil {
		return n.withLacking(ctx, err)
	}
	if err := n.checkForeign(ctx); err != nil { // which says more than that the two do not belong together
		return err
	}
	if err := n.awaitPaired(ctx); err != nil {
		return err
	}
	ready, err := n.setup(ctx)
	if err != nil {
		return n.withLacking(ctx, err)
	}
	// Not before: streams of another installation must not keep this one from another namespace.
	if err := n.store.Bind(ctx, namespace); err != nil {
		return err
	}
	n.log.Info("streams are ready", "identity", ready.Identity, "sync", ready.Sync)
	guard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.unguard = cancel
	n.guarded.Go(func() { n.conn.Guard(guard) })
	n.guarded.Go(func() { n.keepPaired(guard) })
	n.guarded.Go(func() { n.signHeads(guard, key) })
	n.guarded.Go(func() { n.observers.Guard(n.forecasts.Name(), func() { n.keepForecasts(guard) }) })
	// Before the roles, so that none of them begins with a wrong time.
	n.lookAtClocks(ctx)
	return nil
}

// checkForeign refuses the streams of another installation, naming both.
func (n *Node) checkForeign(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return n.conn.Foreign(bounded, n.streamConfig())
}

// streamConfig is how the streams are to be.
func (n *Node) streamConfig() natsbus.StreamConfig {
	return natsbus.StreamConfig{
		Partitions: n.cfg.Partitions, TaskStreams: n.cfg.TaskStreams, Replicas: n.cfg.StreamReplicas, MaxBytes: n.cfg.StreamMaxBytes,
		ControlBytes: n.cfg.StreamControlMaxBytes, EventsBytes: n.cfg.StreamEventsMaxBytes, DeadBytes: n.cfg.StreamDeadMaxBytes,
		Lease: n.cfg.Lease, SyncAlways: n.cfg.SyncAlways, Installation: n.installation, Guest: !n.cfg.Has(config.RoleScheduler), Dir: n.cfg.NATSDir,
	}
}

// setup makes the streams, or finds them. A request that comes while a cluster
// elects a leader is never answered, so it is asked again. A node without the role
// scheduler waits for one that makes what is missing.
func (n *Node) setup(ctx context.Context) (natsbus.Ready, error) {
	began := time.Now()
	told, warned := false, false
	for {
		try, done := context.WithTimeout(ctx, setupTimeout)
		ready, err := n.conn.Setup(try, n.streamConfig())
		done()
		waits := errors.Is(err, natsbus.ErrNoStream)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, nats.ErrPermissionViolation):
			return ready, err
		case !waits && (!errors.Is(err, context.DeadlineExceeded) || time.Since(began) > startTimeout):
			return ready, err
		}
		switch lasts := time.Since(began) >= ground.DefaultGrace; {
		case lasts && !warned:
			warned = true
			n.log.Warn("the streams are still not ready; trying again", "error", err)
		case !told: // nodes that start together
			n.log.Info("the streams are not ready yet; trying again", "error", err)
		}
		told = true
		if waits && pause.For(ctx, setupAgain) != nil {
			return ready, err
		}
	}
}

// closeMost is how long Close waits when it has not been said when all must have ended.
const closeMost = 5 * time.Second

// Close ends the connections. The roles must have ended, or been given up by Run.
// It waits no longer than a stop may take: a server that does not answer must not
// keep the process.
func (n *Node) Close() error {
	defer n.lines.Close()
	by := time.Now().Add(closeMost)
	if at := n.endBy.Load(); at != nil {
		by = at.Add(endMargin)
	}
	n.closeTraces(by)
	if n.unguard != nil {
		n.unguard()
		within(by, n.guarded.Wait)
	}
	if n.conn != nil {
		n.conn.EndBy(by)
		if !within(by, n.conn.Close) {
			n.log.Warn("the connection to NATS did not close in time")
		}
	}
	var err error
	if !within(by, func() {
		if n.plans != nil {
			n.plans.wg.Wait()
		}
		if n.store != nil {
			err = n.store.Close()
		}
	}) {
		n.log.Warn("the database's connections did not close in time")
		return nil
	}
	return err
}

// within calls f and waits for it until then. It reports false, and lets f go on, when that was not long enough:
// the process is about to end.
func within(by time.Time, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(time.Until(by))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	select {
	case <-done: // both: it had no time at all, but needed none
		return true
	default:
		return false
	}
}

// endMargin is what a stop may take beyond the configured drain: for what is cut off
// to notice, and for connections to close. Each of the two has half.
const endMargin = 400 * time.Millisecond

// Run runs the configured roles, the ground's supervisor and, if there is an
// address, the HTTP server until ctx ends; then it drains. It ends early when a
// role fails. What has not ended when the time of a drain is over is given up: it
// was about to be cut off by the end of the process anyway, which loses nothing.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, len(n.cfg.Roles)+3)
	var mu sync.Mutex
	running := map[string]bool{}
	start := func(name string, run func(context.Context) error) {
		mu.Lock()
		running[name] = true
		mu.Unlock()
		wg.Go(func() {
			defer func() {
				mu.Lock()
				delete(running, name)
				mu.Unlock()
			}()
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
	start("ground", n.runGround)
	start("pairing", n.awaitUnpaired)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wg.Wait()
	}()
	<-ctx.Done()
	n.ends()
	timer := time.NewTimer(time.Until(n.endBy.Load().Add(endMargin)))
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		mu.Lock()
		names := slices.Sorted(maps.Keys(running))
		mu.Unlock()
		n.log.Warn("stopping without a full drain", "drain", n.cfg.Drain, "given_up", strings.Join(names, ","))
	}
	var all error
	for len(errs) > 0 {
		all = errors.Join(all, <-errs)
	}
	return all
}

// ends notes that the node ends, from the first call on: everything has the time of a drain.
func (n *Node) ends() {
	at := time.Now().Add(n.cfg.Drain)
	if n.endBy.CompareAndSwap(nil, &at) && n.conn != nil {
		n.conn.EndBy(at)
	}
}

// ending is a context for what is left to do when ctx has ended: for d, and no longer than the node may take.
func (n *Node) ending(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	by := time.Now().Add(d)
	if at := n.endBy.Load(); at != nil && at.Before(by) {
		by = *at
	}
	return context.WithDeadline(context.WithoutCancel(ctx), by)
}

// RunRole runs one role until ctx ends. abrupt leaves out the drain, as if the
// process had been killed.
func (n *Node) RunRole(ctx context.Context, role string, abrupt bool) error {
	switch role {
	case config.RoleIngest:
		return n.runIngest(ctx)
	case config.RoleScheduler:
		return n.runScheduler(ctx, abrupt)
	case config.RoleSupervisor:
		return n.runSupervisor(ctx, abrupt)
	}
	return fmt.Errorf("role %q is not one of %s", role, strings.Join(config.Roles, ", "))
}

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

// Listens gives the address of the HTTP server, once, when it listens.
func (n *Node) Listens() <-chan string { return n.listens }

// OwnsAll reports whether this node holds every partition.
func (n *Node) OwnsAll() bool {
	own := n.owning()
	return own != nil && own.Owned() == n.cfg.Partitions
}

// Books reads all tasks for a check of the books.
func (n *Node) Books(ctx context.Context) (schema.Books, error) { return n.store.Books(ctx) }

// random is safe for use by several goroutines.
func random() float64 { return rand.Float64() }

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/operate"
)

// serviceSeed is that of the mock services in every run.
const serviceSeed = 1

// defaultPartitions suits one node of two processors: a submission is packed, synced
// and read with those of its own partition only, so more partitions mean smaller packs.
const defaultPartitions = 4

// databaseSettings are those of every run on PostgreSQL: durable as by default, with
// the sizes of a small server of its own.
var databaseSettings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "autovacuum": "on",
	"shared_buffers": "2GB", "max_connections": "200",
}

// maxWALSize is PostgreSQL's setting in GiB, which decides how often it makes a
// checkpoint; sustained has less, so that two fall into it.
const (
	maxWALSize       = 4
	sustainedWALSize = 3
)

// rig is a system under test with everything around it.
type rig struct {
	dir        string
	store      string
	database   string // URL, also of SQLite
	cluster    *localpg.Cluster
	pid        int // of the database; 0: SQLite, which is in the engine
	sql        *pgx.Conn
	engine     *child // nil: of a system that ran already
	nats       *child // nil: it is in the engine
	agents     *child
	natsURL    string
	httpURL    string // empty: not served
	token      string // of an operator
	scale      float64
	partitions int
	profiles   string // folder of profiles; empty: none
	runs       int
}

// rigOptions say how to set one up.
type rigOptions struct {
	Store        string
	Single       bool
	Waiting      bool // see agentSettings
	Partitions   int
	Shards       int           // 0: the product's
	CommitGap    time.Duration // 0: the product's
	Scale        float64
	RetainDetail time.Duration
	QueueFor     time.Duration // of the plan of the drone example; 0: its time counts from the submission
	Profiles     string
	Apart        bool                              // NATS is a process of its own, and each process has one processor
	Bare         bool                              // no agents and no plan of the drone example
	Memory       int64                             // bytes of the engine's machine; 0: those of this one
	HTTP         bool                              // the engine serves the API and the console, with auth on
	MaxWALSize   int                               // in GiB; 0: maxWALSize
	Prepare      func(context.Context, *rig) error // after the tables are there, before the engine
	NATSURL      string                            // of a system that runs already; empty: start one
	Database     string                            // URL of its state store
}

func newRig(ctx context.Context, o rigOptions) (*rig, error) {
	dir, err := os.MkdirTemp("", "duly-bench-")
	if err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	r := &rig{dir: dir, store: o.Store, partitions: o.Partitions, scale: o.Scale, profiles: o.Profiles}
	if err := r.start(ctx, o); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, o rigOptions) error {
	r.natsURL, r.database = o.NATSURL, o.Database
	if o.NATSURL == "" {
		if err := r.startEngine(ctx, o); err != nil {
			return err
		}
	}
	if o.Bare {
		return nil
	}
	agents := agentSettings{NATSURL: r.natsURL, Seed: serviceSeed, Scale: o.Scale, Single: o.Single, Waiting: o.Waiting, Profile: r.profile(partAgents)}
	var err error
	if r.agents, err = startChild(ctx, partAgents, 1, agents, &struct{}{}); err != nil {
		return err
	}
	return applyPlan(ctx, r.natsURL, o.QueueFor)
}

// startEngine starts the engine and what keeps its state.
func (r *rig) startEngine(ctx context.Context, o rigOptions) error {
	engine := engineSettings{Dir: filepath.Join(r.dir, "engine"), RetainDetail: o.RetainDetail, Partitions: o.Partitions, Shards: o.Shards, CommitGap: o.CommitGap, HTTP: o.HTTP, Memory: o.Memory, Profile: r.profile(partEngine)}
	r.database = "sqlite:" + filepath.Join(engine.Dir, "duly.db")
	if o.Store == "postgres" {
		if err := r.startDatabase(ctx, o); err != nil {
			return err
		}
		engine.Database = r.database
	}
	if o.Prepare != nil {
		if err := os.MkdirAll(engine.Dir, 0o700); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		if err := o.Prepare(ctx, r); err != nil {
			return err
		}
	}
	processors := 2
	var err error
	if o.Apart {
		var ready natsReady
		processors = 1
		if r.nats, err = startChild(ctx, partNATS, processors, natsSettings{filepath.Join(r.dir, "nats"), r.profile(partNATS)}, &ready); err != nil {
			return err
		}
		engine.NATSURL = ready.URL
	}
	var ready engineReady
	if r.engine, err = startChild(ctx, partEngine, processors, engine, &ready); err != nil {
		return err
	}
	r.natsURL, r.httpURL = ready.NATSURL, ready.HTTPURL
	if !o.HTTP {
		return nil
	}
	if _, r.token, err = node.CreateToken(ctx, r.database, "bench", operate.RoleOperator, time.Time{}, "bench"); err != nil {
		return err
	}
	return answers(ctx, r.httpURL)
}

func (r *rig) profile(part string) string {
	if r.profiles == "" {
		return ""
	}
	return filepath.Join(r.profiles, part)
}

func (r *rig) startDatabase(ctx context.Context, o rigOptions) error {
	var err error
	settings := maps.Clone(databaseSettings)
	wal := orElse(o.MaxWALSize, maxWALSize)
	settings["max_wal_size"], settings["min_wal_size"] = fmt.Sprintf("%dGB", wal), fmt.Sprintf("%dGB", wal)
	if r.cluster, err = localpg.Start(localpg.Options{Settings: settings}); err != nil {
		return fmt.Errorf("throwaway PostgreSQL: %w", err)
	}
	if r.pid, err = r.cluster.PID(); err != nil {
		return err
	}
	if r.database, err = r.cluster.NewDatabase(ctx); err != nil {
		return err
	}
	if r.sql, err = pgx.Connect(ctx, r.database); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return node.Migrate(ctx, r.database)
}

// close ends everything.
func (r *rig) close() error {
	var errs []error
	for _, c := range []*child{r.agents, r.engine, r.nats} {
		if c != nil {
			errs = append(errs, c.stop())
		}
	}
	if r.sql != nil {
		errs = append(errs, r.sql.Close(context.Background()))
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

func (r *rig) acceptedFile() string { return filepath.Join(r.dir, "accepted") }

// counters are the database's own counts.
type counters struct {
	wal         int64 // bytes written ahead
	checkpoints int
	statements  int64
}

func (r *rig) counters(ctx context.Context) (counters, error) {
	var c counters
	if r.sql == nil {
		return c, nil
	}
	checkpoints := `SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter`
	var apart bool // PostgreSQL 17 and newer count checkpoints in a view of their own
	if err := r.sql.QueryRow(ctx, `SELECT to_regclass('pg_stat_checkpointer') IS NOT NULL`).Scan(&apart); err != nil {
		return c, fmt.Errorf("counters of the database: %w", err)
	}
	if apart {
		checkpoints = `SELECT num_timed + num_requested FROM pg_stat_checkpointer`
	}
	err := r.sql.QueryRow(ctx, `SELECT pg_current_wal_lsn() - '0/0', (`+checkpoints+`),
		(SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database())`).Scan(&c.wal, &c.checkpoints, &c.statements)
	if err != nil {
		return c, fmt.Errorf("counters of the database: %w", err)
	}
	return c, nil
}

// load offers one load and gives what was measured, the books still open.
func (r *rig) load(ctx context.Context, segments []segment) (*Result, error) {
	res, err := r.offer(ctx, generatorSettings{Segments: segments})
	if err != nil {
		return nil, err
	}
	return res.Result, nil
}

// offered is what one load was and cost.
type offered struct {
	*Result
	used    usage // from its beginning until it had drained
	stalled bool  // it did not drain
}

// cores is what so many seconds of CPU are of the whole time.
func (o *offered) cores(seconds float64) float64 { return ratio(seconds, o.Seconds+o.DrainSeconds) }

// offer is load with more to say.
func (r *rig) offer(ctx context.Context, s generatorSettings) (*offered, error) {
	r.runs++
	s.NATSURL, s.HTTPURL, s.Token, s.Seed, s.Scale = r.natsURL, r.httpURL, r.token, uint64(r.runs), r.scale
	s.AcceptedFile, s.Profile = r.acceptedFile(), r.profile(partGenerator)
	generator, err := startChild(ctx, partGenerator, 1, s, &struct{}{})
	if err != nil {
		return nil, err
	}
	res, err := r.measure(ctx, generator, s.Segments)
	return res, errors.Join(err, generator.stop())
}

func (r *rig) measure(ctx context.Context, generator *child, segments []segment) (*offered, error) {
	before, err := r.counters(ctx)
	if err != nil {
		return nil, err
	}
	watch := &sampler{agents: r.agents.pid(), generator: generator.pid(), database: r.pid}
	if r.engine != nil {
		watch.engine = r.engine.pid()
	}
	if r.nats != nil {
		watch.nats = r.nats.pid()
	}
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { watch.run(watching) })
	disk, err := startDiskProbe(ctx, r.dir)
	var done loadDone
	if err == nil {
		err = errors.Join(generator.ask(struct{}{}, &done), disk.end())
	}
	stop()
	wg.Wait()
	if err != nil {
		return nil, err
	}
	after, err := r.counters(ctx)
	if err != nil {
		return nil, err
	}
	report := loadReport{}
	if err := generator.ask(struct{}{}, &report); err != nil {
		return nil, err
	}
	res := &report.Result
	res.WALPerTask = ratio(float64(after.wal-before.wal), float64(done.Ended))
	res.Checkpoints = after.checkpoints - before.checkpoints
	res.PSSMax = watch.pss
	account(res, &report, watch, &done, segments)
	if r.engine != nil { // of a system that runs elsewhere this is not the disk
		disk.report(res, done.Began, done.Stopped)
	}
	return &offered{res, watch.between(done.Began, done.Drained), done.Stalled}, nil
}

// account works out what needs both the generator's notes and the processes'.
func account(res *Result, report *loadReport, watch *sampler, done *loadDone, segments []segment) {
	seconds := float64(done.Stopped-done.Began) / 1e9
	res.Seconds = seconds
	for _, s := range segments {
		if !s.Warm {
			res.OfferedPerS = max(res.OfferedPerS, float64(s.Rate))
		}
	}
	res.TasksPerS = float64(report.MeasuredInTime) / seconds
	res.StepsPerS = res.TasksPerS * drone.StepCount
	res.FinalBacklog = res.Accepted - report.MeasuredEnded
	used := watch.between(done.Began, done.Stopped)
	res.Cores, res.StolenCores = used.total()/seconds, used.stolen/seconds
	res.FrozenMS = ms(watch.frozen)
	drained := float64(done.Drained-done.Spiked) / 1e9
	res.DrainSeconds = drained
	inDrain, measured := 0, 0
	for _, p := range res.Timeline {
		measured += p.InTime
		if int64(p.Second)*1e9 >= done.Spiked-done.Began {
			inDrain += p.InTime
		}
	}
	res.DrainTasksPerS = ratio(float64(inDrain), drained)
	res.CPUPerTask = watch.between(done.Began, done.Drained).per(float64(measured), 1e6)
	for i := range res.Timeline {
		at := done.Began + int64(i)*1e9
		res.Timeline[i].Cores = watch.between(at, at+1e9).per(1, 1)
	}
	rate := int(res.OfferedPerS)
	if last := segments[len(segments)-1]; last.Settle {
		rate = last.Rate
	}
	spiked := int((done.Spiked - done.Began) / 1e9)
	for _, p := range res.Timeline {
		if p.Second >= spiked && p.Backlog <= rate {
			res.RecoverSeconds = float64(p.Second+1) - float64(done.Spiked-done.Began)/1e9
			break
		}
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// countPurged counts the tasks whose details are gone.
func (r *rig) countPurged(ctx context.Context, res *Result) error {
	if r.sql == nil {
		return nil
	}
	if err := r.sql.QueryRow(ctx, `SELECT count(*) FROM tasks t JOIN partitions p USING (partition) WHERE t.state IN ('processed', 'undone') AND t.end_number <= p.forgotten`).Scan(&res.Purged); err != nil {
		return fmt.Errorf("count the purged tasks: %w", err)
	}
	res.Purged -= res.Preloaded
	return nil
}

// closeBooks ends the run: it compares the state store with the books of the services.
func (r *rig) closeBooks(res *Result) error {
	var closed booksClosed
	if err := r.agents.ask(agentsRequest{AcceptedFile: r.acceptedFile(), Database: r.database}, &closed); err != nil {
		return err
	}
	// The books hold the warm-up and every probe too; all of them must close.
	b := &closed.Report
	res.Lost, res.Doubled, res.HalfDone = b.Lost, b.Doubled, b.HalfDone
	for _, e := range b.Examples {
		fmt.Fprintf(os.Stderr, "%s: task %s: %s\n", e.Finding, e.Task, e.Why)
	}
	if !b.Clean() {
		return fmt.Errorf("%w: lost %d, doubled %d, half done %d", errBooks, b.Lost, b.Doubled, b.HalfDone)
	}
	if b.Processed+b.Undone+b.Error != b.Accepted {
		return fmt.Errorf("%w: %d accepted, %d ended", errBooks, b.Accepted, b.Processed+b.Undone+b.Error)
	}
	return nil
}

var errBooks = errors.New("the books do not close")

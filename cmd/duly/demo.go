package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"duly.dev/duly"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/dev"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/books"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
)

// Times of the demo.
const (
	stormEvery   = 3 * time.Second  // between two restarts of a role
	demoGrace    = 90 * time.Second // without any task ending: then the rest counts as lost
	demoAskEvery = 100 * time.Millisecond
	readyMax     = 5 * time.Second // until the partitions are taken
	demoWorkers  = 256             // submissions under way at a time
)

// demoCmd runs deliveries through everything and checks the books.
type demoCmd struct {
	Tasks  int    `default:"1000" help:"Deliveries to submit."`
	Rate   int    `default:"1000" help:"Submissions per second; 0: as fast as they are taken."`
	Faults string `enum:"none,some,storm" default:"some" help:"What goes wrong: none, some or storm."`
	Store  string `default:"sqlite" help:"sqlite, postgres (a throwaway server of this machine's binaries) or a database URL."`
	Seed   uint64 `default:"1" help:"Seed of deliveries, latencies and faults."`
	CPU    string `name:"cpu-profile" type:"path" help:"Write a CPU profile of the run to this file, for go tool pprof."`
	JSON   bool   `name:"json" help:"Print the result as one JSON object on the last line."`

	config.Logs `embed:""`
}

// Validate is kong's.
func (c *demoCmd) Validate() error {
	if c.Tasks < 1 || c.Tasks > 5_000_000 {
		return fmt.Errorf("tasks: %d, want 1 to 5000000", c.Tasks)
	}
	if c.Rate < 0 || c.Rate > 1_000_000 {
		return fmt.Errorf("rate: %d, want 0 to 1000000", c.Rate)
	}
	return nil
}

// Run runs the demo. It fails unless every accepted delivery ended and nothing
// is lost, doubled or half done.
func (c *demoCmd) Run(ctx context.Context, std streams) error {
	dir, err := os.MkdirTemp("", "duly-demo-")
	if err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	stopProfile, err := profile(c.CPU)
	if err != nil {
		return err
	}
	defer stopProfile()
	d := &demo{cmd: c, out: std.out, bar: newBar(std.out, c.Tasks)}
	report, err := d.run(ctx, dir, std)
	if err != nil {
		return err
	}
	if !c.JSON {
		report.writeTable(std.out)
	} else if err := report.writeJSON(std.out); err != nil {
		return err
	}
	if !report.clean() {
		return errUnclean
	}
	return nil
}

// profile writes a CPU profile until the function it returns is called.
func profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("cpu-profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("cpu-profile: %w", err), f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// terminal reports whether a person looks on.
func terminal(w io.Writer) bool {
	f, ok := show.Under(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newBar is a progress bar where a person looks on.
func newBar(w io.Writer, tasks int) *progressbar.ProgressBar {
	if !terminal(w) {
		return progressbar.DefaultSilent(int64(tasks))
	}
	return progressbar.NewOptions(tasks, progressbar.OptionSetWriter(show.Under(w)), progressbar.OptionSetDescription("deliveries ended"),
		progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
}

// demo is one run.
type demo struct {
	cmd *demoCmd
	out io.Writer
	bar *progressbar.ProgressBar

	system   *dev.System
	flow     *drone.Workflow
	services *drone.Services
	requests *drone.Generator
	began    time.Time

	mu       sync.Mutex
	sent     map[string]time.Time // when each id was first submitted
	accepted []string
	submit   *latencies
	ended    *latencies
	refused  atomic.Int64
	unknown  atomic.Int64
}

func (d *demo) run(ctx context.Context, dir string, std streams) (*demoReport, error) {
	faults, err := drone.FaultsNamed(d.cmd.Faults)
	if err != nil {
		return nil, err
	}
	logs := d.cmd.Logs
	if logs.LogLevel == "info" {
		logs.LogLevel = "error" // a storm warns all the time, and that is what it is for
	}
	d.system, err = dev.Start(ctx, dev.Options{Dir: dir, Store: d.cmd.Store, Config: demoConfig(), Log: newLog(std.err, logs)})
	if err != nil {
		return nil, err
	}
	ended, err := d.system.Node.EndedTasks(ctx)
	if err == nil && ended > 0 {
		err = misuse("store: the database has tasks already, and the books of the services begin empty: give an empty one")
	}
	var report *demoReport
	if err == nil {
		report, err = d.serve(ctx, faults)
	}
	return report, errors.Join(err, d.system.Close())
}

// demoConfig is a node in one process whose lease is short: roles come and go in
// a storm, and each change waits for a lease.
func demoConfig() config.Config {
	config := dev.Config("demo", 16)
	config.ScanInterval, config.Lease, config.StreamMaxBytes = 250*time.Millisecond, 2*time.Second, 1<<30
	return config
}

// serve runs roles and agents around the submissions.
func (d *demo) serve(ctx context.Context, faults drone.Faults) (*demoReport, error) {
	d.submit, d.ended, d.sent = newLatencies(), newLatencies(), make(map[string]time.Time, d.cmd.Tasks)
	d.flow, d.requests = drone.NewWorkflow(drone.QuickPlan()), drone.NewGenerator(d.cmd.Seed)
	var err error
	if d.services, err = drone.NewServices(drone.ServiceOptions{Seed: d.cmd.Seed, Scale: 1, Faults: faults}); err != nil {
		return nil, err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var roles, agents sync.WaitGroup
	roles.Go(func() {
		every := 365 * 24 * time.Hour
		if d.cmd.Faults == "storm" {
			every = stormEvery
		}
		if err := d.system.Keep(work, every); err != nil {
			stop(err)
		}
	})
	agentConn, err := d.agents(work, faults, &agents, stop)
	if err == nil {
		err = d.drive(work)
	}
	stop(err)
	agents.Wait()
	roles.Wait()
	if agentConn != nil {
		agentConn.Close()
	}
	if cause := context.Cause(work); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if err != nil {
		return nil, err
	}
	return d.count(context.WithoutCancel(ctx))
}

func (d *demo) agents(ctx context.Context, faults drone.Faults, wg *sync.WaitGroup, stop context.CancelCauseFunc) (*nats.Conn, error) {
	options := []nats.Option{nats.Name("drone-agents"), nats.MaxReconnects(-1)}
	if faults.Doubled+faults.Dropped > 0 {
		tamper, err := drone.NewTamper(d.cmd.Seed, faults)
		if err != nil {
			return nil, err
		}
		options = append(options, tamper.Option())
	}
	nc, err := nats.Connect(d.system.NATSURL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect the agents: %w", err)
	}
	agent, err := drone.NewAgent(nc, d.flow, d.services, duly.Running(8192), duly.Waiting(1<<16), duly.Drain(5*time.Second))
	if err != nil {
		return nc, err
	}
	wg.Go(func() {
		if err := agent.Run(ctx); err != nil && ctx.Err() == nil {
			stop(fmt.Errorf("agents: %w", err))
		}
	})
	return nc, nil
}

// drive stores the plan, submits, and waits for the ends.
func (d *demo) drive(ctx context.Context) error {
	nc, err := nats.Connect(d.system.NATSURL, nats.Name("demo"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect the submitter: %w", err)
	}
	defer nc.Close()
	client, err := duly.NewClient(nc)
	if err != nil {
		return err
	}
	if err := d.flow.Plan.Apply(ctx, client); err != nil {
		return err
	}
	d.ready(ctx)
	inbox := nc.NewInbox()
	sub, err := nc.Subscribe(inbox, func(m *nats.Msg) { d.status(m.Data) })
	if err != nil {
		return fmt.Errorf("listen to statuses: %w", err)
	}
	if err := errors.Join(sub.SetPendingLimits(-1, -1), nc.Flush()); err != nil {
		return err
	}
	d.began = time.Now()
	if err := d.submitAll(ctx, client, inbox); err != nil {
		return err
	}
	return d.await(ctx)
}

// ready waits until the partitions are taken, so that the figures are not those
// of the start; a storm may begin before, which is no matter.
func (d *demo) ready(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	_ = d.system.AwaitOwned(ctx) // figures of the start are better than none
}

// status notes when a delivery ended, once.
func (d *demo) status(data []byte) {
	status, err := duly.ParseStatus(data)
	if err != nil || !status.State.Ended() {
		return
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, ok := d.sent[status.Task]; ok && !at.IsZero() {
		d.sent[status.Task] = time.Time{}
		d.ended.add(now.Sub(at))
		_ = d.bar.Add(1) // a bar that cannot be drawn is no reason to stop
	}
}

// submitAll hands the deliveries in, spread over time by the rate.
func (d *demo) submitAll(ctx context.Context, client *duly.Client, inbox string) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(demoWorkers, d.cmd.Tasks) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= d.cmd.Tasks || ctx.Err() != nil || !d.pace(ctx, i) {
					return
				}
				d.submitOne(ctx, client, inbox, i)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (d *demo) pace(ctx context.Context, i int) bool {
	if d.cmd.Rate == 0 {
		return true
	}
	return pause.For(ctx, time.Until(d.began.Add(time.Duration(i)*time.Second/time.Duration(d.cmd.Rate)))) == nil
}

func (d *demo) submitOne(ctx context.Context, client *duly.Client, inbox string, i int) {
	request := d.requests.Request(i)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	d.mu.Lock()
	d.sent[request.DeliveryID] = began
	d.mu.Unlock()
	_, err := d.flow.Plan.Submit(ctx, client, request.DeliveryID, request, duly.ReplyTo(inbox))
	switch {
	case err == nil:
		d.mu.Lock()
		d.accepted = append(d.accepted, request.DeliveryID)
		d.submit.add(time.Since(began))
		d.mu.Unlock()
	case errors.Is(err, duly.ErrRefused):
		d.refused.Add(1)
		fmt.Fprintf(d.out, "refused: %v\n", err)
	default:
		d.unknown.Add(1)
	}
}

// await waits until every accepted delivery has ended, or until nothing has
// moved for demoGrace: the checker tells what is missing.
func (d *demo) await(ctx context.Context) error {
	tick := time.NewTicker(demoAskEvery)
	defer tick.Stop()
	best, since := -1, time.Now()
	for {
		ended, err := d.system.Node.EndedTasks(ctx)
		switch {
		case err == nil && ended >= len(d.accepted):
			_ = d.bar.Finish()
			return nil
		case err == nil && ended > best:
			best, since = ended, time.Now()
		case time.Since(since) > demoGrace:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// count closes the books.
func (d *demo) count(ctx context.Context) (*demoReport, error) {
	took := time.Since(d.began)
	if err := d.services.Settle(ctx); err != nil {
		return nil, err
	}
	outcomes, steps, err := d.outcomes(ctx)
	if err != nil {
		return nil, err
	}
	compared, err := d.system.CompareBooks(ctx, d.services.Books().ByAgent())
	if err != nil {
		return nil, err
	}
	r := d.services.Books().CheckBeside(d.accepted, outcomes)
	addGhosts(&r, compared)
	return &demoReport{
		Store: d.cmd.Store, Faults: d.cmd.Faults, Seed: d.cmd.Seed, Submitted: d.cmd.Tasks,
		Accepted: r.Accepted, Refused: int(d.refused.Load()), Unknown: int(d.unknown.Load()),
		Processed: r.Processed, Undone: r.Undone, Error: r.Error, Lost: r.Lost, Doubled: r.Doubled, HalfDone: r.HalfDone,
		SubmitMS: d.submit.quantiles(), EndToEndMS: d.ended.quantiles(),
		StepsPerS: float64(steps) / took.Seconds(), TasksPerS: float64(r.Accepted) / took.Seconds(), Seconds: took.Seconds(),
		Restarts: d.system.Restarts(), Examples: r.Examples,
	}, nil
}

// addGhosts adds what journal and services do not agree on.
func addGhosts(r *drone.Report, compared *books.Report) {
	for i := range compared.Ghosts {
		g := &compared.Ghosts[i]
		r.Ghost(g.Kind == operate.GhostDoubled, g.Task, g.Key+" at "+g.Agent+": "+g.Text)
	}
	doubled := compared.Kinds[operate.GhostDoubled]
	r.Doubled, r.HalfDone = max(r.Doubled, int(doubled)), max(r.HalfDone, int(compared.Total-doubled)) // those that are not named count
}

// outcomes reads from the state store how every task ended, and how many step
// answers were committed.
func (d *demo) outcomes(ctx context.Context) (drone.OutcomeMap, int64, error) {
	audit, err := d.system.Node.Books(ctx)
	if err != nil {
		return nil, 0, err
	}
	m := drone.OutcomesOf(audit.States)
	for _, twice := range audit.DoneTwice {
		m.AddDone(twice.Task, drone.DoneRows{Step: twice.Step, Round: twice.Round, Rows: twice.Rows})
	}
	return m, audit.StepRows, nil
}

// Bench offers loads to Duly and measures what becomes of them. It starts what
// it needs, each part in a process of its own: a generator that sends by a fixed
// schedule and counts latencies from it, the engine (embedded NATS and all
// roles), the agents of the drone example over the wire, and a throwaway
// PostgreSQL where that is the store. Every run ends with a check of the books.
// Overload has NATS in a process of its own, the whole system on one core and the
// generator on another.
//
//	go -C bench run . -scenario peak|sustained|spike|idle|growth -store sqlite|postgres
//	go -C bench run . -scenario overload -store sqlite|postgres -door request|stream|http -factors 1,1.2,1.5,2,5
//	go -C bench run . -scenario full-agents -pairs 1
//	go -C bench run . -scenario waits|diamond|each -store sqlite|postgres
//	go -C bench run . -scenario operator|beside|attacked|idle-console|repairs|why -store sqlite|postgres
//	go -C bench run . -scenario peak|sustained|spike -nats nats://HOST:PORT -database URL
//	go -C bench run . -verify FILE...
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/localpg"
)

// settings of a run; the flags.
type settings struct {
	scenario   string
	store      string
	wire       string
	seconds    int
	rate       int
	preload    int
	partitions int
	shards     int
	commitGap  time.Duration
	nats       string
	database   string
	json       string
	html       string
	profiles   string
	waiting    bool
	verify     bool
	pairs      int
	questions  int
	follow     string
	tabs       int
	duly       string

	door        string
	deadline    time.Duration
	factorsText string
	factors     []float64
	firstShare  float64
	obey        int
	connections int
	queueFor    time.Duration
}

func main() {
	if len(os.Args) == 2 && gcPercent[os.Args[1]] > 0 {
		if err := runPart(os.Args[1]); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&s.scenario, "scenario", "peak", scenarioNames())
	f.StringVar(&s.store, "store", "sqlite", "sqlite or postgres (a throwaway server of this machine's binaries)")
	f.StringVar(&s.wire, "wire", "single", "single: one command or reply per NATS message; batched: several, which our own agents understand")
	f.IntVar(&s.seconds, "seconds", 0, "length of the measured load, of overload's windows; 0: the scenario's own")
	f.IntVar(&s.rate, "rate", 0, "tasks per second; peak, beside: only this rate; spike: the spike's; waits: those that become due; overload: a first guess of what the machine can do; 0: the scenario's own")
	f.IntVar(&s.preload, "preload", 0, "sustained: old tasks in the store before the load (postgres); growth: the most parked tasks; waits: parked waits; each: children of the parent; operator, why: all tasks; repairs: failed tasks of an operation")
	f.IntVar(&s.partitions, "partitions", defaultPartitions, "partitions of the system under test")
	f.IntVar(&s.shards, "shards", 0, "committers of the system under test; 0: as duly has them, 2")
	f.DurationVar(&s.commitGap, "commit-gap", 0, "least time from one commit to the next, of the system under test; 0: as duly has it, 5 ms")
	f.BoolVar(&s.waiting, "waiting-agents", false, "the agents' handlers wait for their services, on a goroutine for each call; otherwise the services call back")
	f.StringVar(&s.nats, "nats", "", "drive the system that runs on this NATS server, nats://…, with agents and generator of our own; it must have no other agents of the drone example")
	f.StringVar(&s.database, "database", "", "with -nats: the URL of that system's state store, for the books")
	f.StringVar(&s.json, "json", "", "write the result to this file")
	f.StringVar(&s.html, "html", "", "write the report with its plots to this file; empty: beside the JSON")
	f.StringVar(&s.profiles, "profiles", "", "write profiles of every part to this folder")
	f.IntVar(&s.pairs, "pairs", 0, "beside, repairs, idle-console: how often without and with; diamond: chains and diamonds; each: parents; 0: the scenario's own")
	f.IntVar(&s.questions, "questions", 0, "beside: the operator's questions a second; 0: the scenario's own, 20")
	f.StringVar(&s.follow, "follow", "", "beside: the operator's streams of events, by path, with commas between; empty: the scenario's own three")
	f.IntVar(&s.tabs, "tabs", 0, "idle-console: tabs of the console; 0: the scenario's own, 50")
	f.StringVar(&s.duly, "duly", "", "why: the binary whose command is measured; empty: only over HTTP")
	f.StringVar(&s.door, "door", doorRequest, "overload: where it is handed in: request, stream or http")
	f.DurationVar(&s.deadline, "deadline", overloadDeadline, "overload: of each submission, by header")
	f.StringVar(&s.factorsText, "factors", "1,1.2,1.5,2,5", "overload: how many times what the machine can do is offered, with commas between")
	f.Float64Var(&s.firstShare, "first-share", evenShare, "overload: percent of the arrivals that are of one tenant of 20; the others have the rest evenly")
	f.IntVar(&s.obey, "obey", 0, "overload: percent of the clients that submit nothing until they were told to come again; the others never come again")
	f.IntVar(&s.connections, "connections", 0, "overload: of the clients; 0: one, over HTTP 2000")
	f.DurationVar(&s.queueFor, "queue-for", 0, "spike: the plan's queue_for; 0: the time of its tasks counts from the submission")
	f.BoolVar(&s.verify, "verify", false, "judge result files by the floors instead of measuring")
	if err := f.Parse(args); err != nil {
		return err
	}
	if s.verify {
		return verifyFiles(out, f.Args())
	}
	if f.NArg() > 0 {
		return fmt.Errorf("argument %q: want flags only", f.Arg(0))
	}
	if err := s.check(); err != nil {
		return err
	}
	if s.profiles != "" {
		if err := os.MkdirAll(s.profiles, 0o755); err != nil {
			return fmt.Errorf("profiles: %w", err)
		}
	}
	command := "go -C bench run . " + strings.Join(args, " ")
	if ask := tables[s.scenario]; ask != nil {
		return ask(ctx, &s, command, out)
	}
	res, err := measure(ctx, &s)
	if err != nil {
		return err
	}
	res.Command = command
	return publish(&s, res, out)
}

func (s *settings) check() error {
	if scenarios[s.scenario] == nil && tables[s.scenario] == nil {
		return fmt.Errorf("scenario %q: want %s", s.scenario, scenarioNames())
	}
	if err := s.checkRunning(); err != nil {
		return err
	}
	if s.store != "sqlite" && s.store != "postgres" {
		return fmt.Errorf("store %q: want sqlite or postgres", s.store)
	}
	if s.wire != "single" && s.wire != "batched" {
		return fmt.Errorf("wire %q: want single or batched", s.wire)
	}
	for _, n := range []struct {
		name            string
		is, least, most int
	}{{"seconds", s.seconds, 0, 3600}, {"rate", s.rate, 0, 200_000}, {"preload", s.preload, 0, 20_000_000}, {"partitions", s.partitions, 1, 1024}, {"shards", s.shards, 0, 64}, {"pairs", s.pairs, 0, 100}, {"obey", s.obey, 0, 100}, {"connections", s.connections, 0, 20_000}, {"questions", s.questions, 0, 1000}, {"tabs", s.tabs, 0, 1000}} {
		if n.is < n.least || n.is > n.most {
			return fmt.Errorf("%s: %d, want %d to %d", n.name, n.is, n.least, n.most)
		}
	}
	if err := s.checkOverload(); err != nil {
		return err
	}
	if s.commitGap < 0 || s.commitGap > time.Second {
		return fmt.Errorf("commit-gap: %v, want 0 to 1s", s.commitGap)
	}
	if s.queueFor != 0 && (s.scenario != "spike" || s.queueFor < core.QueueForMin || s.queueFor > core.QueueForMax) {
		return fmt.Errorf("queue-for: %v, want %v to %v, of spike", s.queueFor, core.QueueForMin, core.QueueForMax)
	}
	if s.preload > 0 && s.scenario == "sustained" && s.store != "postgres" {
		return errors.New("preload: old tasks only with -store postgres")
	}
	return nil
}

// checkOverload checks the settings of overload, and reads its factors.
func (s *settings) checkOverload() (err error) {
	switch {
	case s.scenario != "overload":
		return nil
	case s.door != doorRequest && s.door != doorStream && s.door != doorHTTP:
		return fmt.Errorf("door %q: want request, stream or http", s.door)
	case s.deadline < time.Second || s.deadline > 10*time.Minute:
		return fmt.Errorf("deadline: %v, want 1s to 10m", s.deadline)
	case !(s.firstShare >= 0 && s.firstShare <= 100):
		return fmt.Errorf("first-share: %v, want 0 to 100", s.firstShare)
	}
	s.factors, err = factorsOf(s.factorsText)
	return err
}

// checkRunning checks the settings of a system that runs already. Its URL decides the
// store.
func (s *settings) checkRunning() error {
	switch {
	case s.nats == "" && s.database == "":
		return nil
	case s.nats == "":
		return fmt.Errorf("database %q: only with -nats, whose store it is", s.database)
	case s.database == "":
		return errors.New("nats: want -database too, the URL of that system's state store: without it the books stay open")
	case s.shards > 0 || s.commitGap > 0:
		return errors.New("shards, commit-gap: not with -nats, that system has its own")
	case s.scenario == "idle" || s.scenario == "growth" || tables[s.scenario] != nil:
		return fmt.Errorf("scenario %q: not with -nats, because it needs the engine's process", s.scenario)
	case s.preload > 0 || s.profiles != "":
		return errors.New("preload, profiles: not with -nats, which drives a system that is there already")
	}
	s.store = "postgres"
	if strings.HasPrefix(s.database, "sqlite:") {
		s.store = "sqlite"
	}
	return nil
}

// publish writes the result to the files and to out.
func publish(s *settings, res *Result, out io.Writer) error {
	line, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if s.json != "" {
		if err := os.WriteFile(s.json, append(line, '\n'), 0o644); err != nil {
			return fmt.Errorf("result: %w", err)
		}
		if s.html == "" {
			s.html = strings.TrimSuffix(s.json, filepath.Ext(s.json)) + ".html"
		}
	}
	if s.html != "" {
		page, err := os.Create(s.html)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if err := errors.Join(writeHTML(page, res), page.Close()); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}

// measure runs the scenario and adds where it ran.
func measure(ctx context.Context, s *settings) (*Result, error) {
	database := "a system that ran already"
	if s.nats == "" {
		var err error
		if database, err = databaseText(s.store); err != nil {
			return nil, err
		}
	}
	where, err := machine(runtime.Version(), database)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	res, err := scenarios[s.scenario](ctx, s)
	if err != nil {
		return nil, err
	}
	res.Scenario, res.Store, res.Wire = s.scenario, s.store, s.wire
	if s.nats == "" {
		res.Partitions, res.Shards, res.CommitGap = s.partitions, s.shards, s.commitGap.Seconds()*1e3
	}
	res.Date, res.Machine = began.UTC().Format(time.RFC3339), where
	res.Sync = "every acceptance and every commit is synced to disk before it is answered or acted on"
	if s.nats != "" {
		res.Running, res.Sync = true, ""
	} else if s.store == "postgres" {
		wal := maxWALSize
		if s.scenario == "sustained" {
			wal = sustainedWALSize
		}
		res.MaxWALSize = fmt.Sprintf("%dGB", wal)
	}
	return res, nil
}

func databaseText(store string) (string, error) {
	if store != "postgres" {
		return "SQLite (modernc, WAL, synchronous=FULL)", nil
	}
	version, err := localpg.Version()
	return "PostgreSQL " + version + " (fsync and synchronous_commit on)", err
}

// applyPlan stores the plan of a delivery, which may wait so long for its turn.
func applyPlan(ctx context.Context, url string, queueFor time.Duration) error {
	nc, err := nats.Connect(url, nats.Name("bench"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	client, err := duly.NewClient(nc)
	if err != nil {
		return err
	}
	return drone.NewWorkflow(drone.PlanOptions{QueueFor: queueFor}).Plan.Apply(ctx, client)
}

// Command run runs many seeds of the simulator. A seed that breaks something is
// tried again with fewer tasks, and its history is printed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"sync"

	"duly.dev/duly/internal/sim"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program; it returns its exit status: 1 for violations, 2 for flags
// or files that are no good.
func run(args []string, out, errs io.Writer) int {
	r := runner{out: out, faults: map[string]int{}}
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.SetOutput(errs)
	seeds := flags.Int("seeds", 1000, "how many seeds to run")
	first := flags.Uint64("seed", 1, "the first of them")
	workers := flags.Int("workers", runtime.GOMAXPROCS(0), "worlds at a time")
	flags.IntVar(&r.tasks, "tasks", 0, "tasks of a world; 0: as the seed has it")
	flags.StringVar(&r.world, "world", "all", "linear: plans are chains of calls; graph: graphs of steps of all kinds, with children; gates: chains, while limits, pauses and versions change; all: each seed in each of these; overload: a machine to which more is offered than it does")
	over := overloadFlags(flags)
	flags.BoolVar(&r.operators, "operators", false, "operators meddle with every task again and again, and the database goes back in every world")
	flags.BoolVar(&r.both, "both", false, "database and streams are restored from copies of different times in every world")
	flags.IntVar(&r.show, "show", 3, "violations whose histories are printed")
	store := flags.String("store", "memory", "memory: the simulator's own; sqlite: nodes use SQLite, which is held to that")
	faults := flags.Bool("faults", false, "print how often each fault happened")
	profile := flags.String("cpuprofile", "", "write a profile of the processor's time to this file")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *seeds < 0 || r.tasks < 0 || *workers < 1 || flags.NArg() > 0 {
		fmt.Fprintf(errs, "sim: seeds %d, tasks %d, workers %d, arguments %q: want none below 0, at least one worker, flags only\n", *seeds, r.tasks, *workers, flags.Args())
		return 2
	}
	if r.world == "overload" {
		return over.run(flags, *first, *seeds, *workers, out, errs)
	}
	if worlds[r.world] == nil {
		fmt.Fprintf(errs, "sim: world %q: want linear, graph, gates, all or overload\n", r.world)
		return 2
	}
	if err := r.useStore(*store); err != nil {
		fmt.Fprintln(errs, "sim:", err)
		return 2
	}
	if r.sqlite != nil {
		defer r.sqlite.remove()
	}
	stop, err := startProfile(*profile)
	if err != nil {
		fmt.Fprintln(errs, "sim:", err)
		return 2
	}
	debug.SetGCPercent(400) // worlds are small and many
	r.all(*first, *seeds, *workers)
	stop()
	if *faults {
		r.printFaults()
	}
	fmt.Fprintf(out, "sim: %d seeds, %d events, %d violations\n", r.seeds, r.events, r.violations)
	return min(1, r.violations)
}

func startProfile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("profile: %w", errors.Join(err, f.Close()))
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // it is only looked at by hand
	}, nil
}

// runner adds up what many worlds came to.
type runner struct {
	out         io.Writer
	tasks, show int
	world       string
	sqlite      *sqliteStores // nil: the simulator's own store alone
	operators   bool
	both        bool

	mu         sync.Mutex
	seeds      int
	events     int
	violations int
	faults     map[string]int
}

// all runs the seeds on several workers, each a part of its own.
func (r *runner) all(first uint64, seeds, workers int) {
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for n := i; n < seeds; n += workers {
				r.mu.Lock()
				r.seeds++
				r.mu.Unlock()
				for _, kind := range worlds[r.world] {
					r.one(first+uint64(n), kind)
				}
			}
		})
	}
	wg.Wait()
}

// worlds are the worlds of each seed.
var worlds = map[string][]string{"linear": {"linear"}, "graph": {"graph"}, "gates": {"gates"}, "all": {"linear", "graph", "gates"}}

// useStore opens what worlds need of a store.
func (r *runner) useStore(name string) (err error) {
	switch name {
	case "memory":
		return nil
	case "sqlite":
		r.sqlite, err = newSQLiteStores()
		return err
	}
	return fmt.Errorf("store %q: want memory or sqlite", name)
}

func (r *runner) config(seed uint64, kind string) sim.Config {
	cfg := sim.Draw(seed)
	if r.sqlite != nil {
		cfg.Second = r.sqlite.open
	}
	if kind == "gates" {
		cfg = cfg.AsGates()
	}
	cfg.Graph = kind == "graph"
	cfg.Operators, cfg.Both = r.operators, r.both
	if r.tasks > 0 {
		cfg.Tasks = r.tasks
	}
	return cfg
}

func (r *runner) one(seed uint64, kind string) {
	cfg := r.config(seed, kind)
	w := sim.New(cfg)
	err := w.Run()
	if err != nil {
		cfg, err = shrink(cfg, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events += w.Events()
	for name, n := range w.Faults() {
		r.faults[name] += n
	}
	if err == nil {
		return
	}
	r.violations++
	if r.violations <= r.show {
		more := " -world " + kind
		if r.sqlite != nil {
			more += " -store sqlite"
		}
		if r.operators {
			more += " -operators"
		}
		if r.both {
			more += " -both"
		}
		fmt.Fprintf(r.out, "%v\nagain with: go run ./internal/sim/run -seeds 1 -seed %d -tasks %d%s\n\n", err, seed, cfg.Tasks, more)
	}
}

// shrink looks for a world of the same seed that breaks with fewer tasks.
func shrink(cfg sim.Config, err error) (sim.Config, error) {
	for tasks := 1; tasks < cfg.Tasks; tasks++ {
		small := cfg
		small.Tasks = tasks
		if smaller := sim.New(small).Run(); smaller != nil {
			return small, smaller
		}
	}
	return cfg, err
}

func (r *runner) printFaults() {
	names := make([]string, 0, len(r.faults))
	for name := range r.faults {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(r.out, "%8d  %s\n", r.faults[name], name)
	}
}

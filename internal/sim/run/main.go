// Command run runs many seeds of the simulator. A seed that breaks something is
// tried again with fewer tasks, and its history is printed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"sync"

	"duly.dev/duly/internal/sim"
)

func main() {
	seeds := flag.Int("seeds", 1000, "how many seeds to run")
	first := flag.Uint64("seed", 1, "the first of them")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "worlds at a time")
	tasks := flag.Int("tasks", 0, "tasks of a world; 0: as the seed has it")
	show := flag.Int("show", 3, "violations whose histories are printed")
	faults := flag.Bool("faults", false, "print how often each fault happened")
	profile := flag.String("cpuprofile", "", "write a profile of the processor's time to this file")
	flag.Parse()
	stop, err := startProfile(*profile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(2)
	}
	debug.SetGCPercent(400) // worlds are small and many
	r := runner{tasks: *tasks, show: *show, faults: map[string]int{}}
	r.all(*first, *seeds, max(1, *workers))
	stop()
	if *faults {
		r.printFaults()
	}
	fmt.Printf("sim: %d seeds, %d events, %d violations\n", r.seeds, r.events, r.violations)
	if r.violations > 0 {
		os.Exit(1)
	}
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
		_ = f.Close() // it is only looked at by whoever asked for it
	}, nil
}

// runner adds up what many worlds came to.
type runner struct {
	tasks, show int

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
				r.one(first + uint64(n))
			}
		})
	}
	wg.Wait()
}

func (r *runner) config(seed uint64) sim.Config {
	cfg := sim.Draw(seed)
	if r.tasks > 0 {
		cfg.Tasks = r.tasks
	}
	return cfg
}

func (r *runner) one(seed uint64) {
	cfg := r.config(seed)
	w := sim.New(cfg)
	err := w.Run()
	if err != nil {
		cfg, err = shrink(cfg, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seeds++
	r.events += w.Events()
	for name, n := range w.Faults() {
		r.faults[name] += n
	}
	if err == nil {
		return
	}
	r.violations++
	if r.violations <= r.show {
		fmt.Printf("%v\nagain with: go run ./internal/sim/run -seeds 1 -seed %d -tasks %d\n\n", err, seed, cfg.Tasks)
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
		fmt.Printf("%8d  %s\n", r.faults[name], name)
	}
}

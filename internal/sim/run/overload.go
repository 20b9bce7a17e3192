package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"duly.dev/duly/internal/sim"
)

// overloads are the runs of the world of overload: each seed at each load, with each deadline, at each door.
type overloads struct {
	scenario, loads, deadlines, doors, clients string
	goals                                      bool
	length, queueFor                           time.Duration
	door, slows, take, other                   float64
	others                                     int
	blind, mixed                               bool

	mu      sync.Mutex
	reports map[cell][]sim.OverloadReport
	faults  []string
}

// cell is one figure of the tables.
type cell struct {
	scenario sim.OverloadScenario
	stream   bool
	deadline time.Duration
	load     float64
	clients  sim.OverloadClients
}

func overloadFlags(flags *flag.FlagSet) *overloads {
	o := &overloads{reports: map[cell][]sim.OverloadReport{}}
	flags.StringVar(&o.scenario, "scenario", "all", "of the world overload: steady, spike, still (the database stands still for half a minute), fails (agents fail half of their commands for half a minute, at the loads), slow (one agent answers a second later), freeze (a node stands still), or all: the first three")
	flags.StringVar(&o.loads, "loads", "1,1.2,1.5,2,5,20", "of a steady overload: what is offered, in shares of what the machine does")
	flags.StringVar(&o.deadlines, "deadlines", "5s,15s,60s", "of an overload: what submissions have")
	flags.StringVar(&o.doors, "doors", "request,stream", "of an overload: where they go; those of the tenants beside always to the request door")
	flags.StringVar(&o.clients, "clients", "leave", "of an overload: what a client does that is refused: leave, obey (come again when told) or rush (at once)")
	flags.Float64Var(&o.door, "door-weight", 0, "of an overload: how much more of a processor a thread of the door has than others; 0: as measured")
	flags.Float64Var(&o.take, "take", 0, "of an overload: what a submission costs the door itself, in shares of a task; 0: as measured")
	flags.Float64Var(&o.slows, "slows", 0, "of an overload: how much more everything but the door costs when 50 s of work are unread; 0: as measured, below 0: nothing")
	flags.IntVar(&o.others, "tenants", 0, "of an overload: tenants beside the one who offers the load; 0: nobody names a tenant")
	flags.Float64Var(&o.other, "tenant-load", 0.1, "of an overload: what each of them offers, in shares of what the machine does")
	flags.BoolVar(&o.mixed, "mixed", false, "of an overload: every tenth submission has 1 ms, every tenth a year, and all say that they have priority")
	flags.BoolVar(&o.blind, "blind", false, "of an overload: doors do not tell tenants apart")
	flags.DurationVar(&o.queueFor, "queue-for", 0, "of an overload: deadlines count from a task's turn, for which it may wait so long; 0: from the submission")
	flags.DurationVar(&o.length, "length", 0, "of an overload: when the load ends; 0: when all that is judged has come")
	flags.BoolVar(&o.goals, "goals", false, "of an overload: shares and recovery are judged as well as the books; today's code misses them")
	return o
}

const baseLoad = 0.6 // of a spike and a stop

// cells are the runs that the flags ask for.
func (o *overloads) cells() (all []cell, err error) {
	clients := sim.OverloadClients(o.clients)
	if !slices.Contains([]sim.OverloadClients{sim.ClientsLeave, sim.ClientsObey, sim.ClientsRush}, clients) {
		return nil, fmt.Errorf("clients %q: want leave, obey or rush", o.clients)
	}
	scenarios := []sim.OverloadScenario{sim.OverloadScenario(o.scenario)}
	if o.scenario == "all" {
		scenarios = []sim.OverloadScenario{sim.OverloadSteady, sim.OverloadSpike, sim.OverloadStill}
	} else if !slices.Contains([]sim.OverloadScenario{sim.OverloadSteady, sim.OverloadSpike, sim.OverloadStill, sim.OverloadFails, sim.OverloadSlow, sim.OverloadFreeze}, scenarios[0]) {
		return nil, fmt.Errorf("scenario %q: want steady, spike, still, fails, slow, freeze or all", o.scenario)
	}
	if o.others < 0 || o.others > 1000 || o.other <= 0 {
		return nil, fmt.Errorf("tenants %d at %v: want up to 1000, and loads above 0", o.others, o.other)
	}
	for _, scenario := range scenarios {
		loads := strings.Split(o.loads, ",")
		if scenario == sim.OverloadSpike || scenario == sim.OverloadStill {
			loads = []string{fmt.Sprint(baseLoad)}
		}
		for _, door := range strings.Split(o.doors, ",") {
			if door != "request" && door != "stream" {
				return nil, fmt.Errorf("doors %q: want request, stream or both", o.doors)
			}
			for _, text := range strings.Split(o.deadlines, ",") {
				deadline, err := time.ParseDuration(text)
				if err != nil || deadline < time.Second {
					return nil, fmt.Errorf("deadlines %q: want durations of a second or more", o.deadlines)
				}
				for _, text := range loads {
					load, err := strconv.ParseFloat(text, 64)
					if err != nil || load <= 0 || load > 100 {
						return nil, fmt.Errorf("loads %q: want numbers above 0, up to 100", o.loads)
					}
					all = append(all, cell{scenario, door == "stream", deadline, load, clients})
				}
			}
		}
	}
	return all, nil
}

// run runs all cells of all seeds, and prints what they came to.
func (o *overloads) run(flags *flag.FlagSet, first uint64, seeds, workers int, out, errs io.Writer) int {
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "seeds" })
	if !given {
		seeds = 1 // a seed is many worlds, and long ones
	}
	cells, err := o.cells()
	if err != nil {
		fmt.Fprintln(errs, "sim:", err)
		return 2
	}
	began := time.Now()
	capacity := map[sim.OverloadConfig]float64{}
	for seed := first; seed < first+uint64(seeds); seed++ {
		for _, stream := range []bool{false, true} {
			if slices.ContainsFunc(cells, func(c cell) bool { return c.stream == stream }) {
				c, err := sim.OverloadCapacity(sim.OverloadConfig{Seed: seed, Stream: stream, Door: o.door, Slows: o.slows, Take: o.take})
				if err != nil {
					o.fault(err, seed, cell{stream: stream})
				}
				capacity[sim.OverloadConfig{Seed: seed, Stream: stream}] = c
			}
		}
	}
	work := make(chan sim.OverloadConfig)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for cfg := range work {
				o.one(cfg)
			}
		})
	}
	for seed := first; seed < first+uint64(seeds); seed++ {
		for _, c := range cells {
			work <- sim.OverloadConfig{Seed: seed, Scenario: c.scenario, Clients: c.clients, Stream: c.stream, Load: c.load, Deadline: c.deadline, Length: o.length, Others: o.others, Other: o.other, Blind: o.blind, Mixed: o.mixed, QueueFor: o.queueFor, Door: o.door, Slows: o.slows, Take: o.take,
				Goals: o.goals, Capacity: capacity[sim.OverloadConfig{Seed: seed, Stream: c.stream}]}
		}
	}
	close(work)
	wg.Wait()
	o.print(out, cells, len(cells) == 1 && seeds == 1)
	for _, text := range o.faults[:min(len(o.faults), 10)] {
		fmt.Fprintln(out, text)
	}
	fmt.Fprintf(out, "sim: %d seeds, %d worlds of overload in %s, %d violations\n", seeds, len(cells)*seeds, time.Since(began).Round(100*time.Millisecond), len(o.faults))
	return min(1, len(o.faults))
}

// one runs one world.
func (o *overloads) one(cfg sim.OverloadConfig) {
	rep, err := sim.RunOverload(cfg)
	c := cell{cfg.Scenario, cfg.Stream, cfg.Deadline, cfg.Load, cfg.Clients}
	if err != nil {
		o.fault(err, cfg.Seed, c)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports[c] = append(o.reports[c], rep)
}

// fault notes a violation, with how to see it again.
func (o *overloads) fault(err error, seed uint64, c cell) {
	goals := ""
	if o.others > 0 {
		goals = fmt.Sprintf(" -tenants %d -tenant-load %v", o.others, o.other)
	}
	if o.blind {
		goals += " -blind"
	}
	if o.mixed {
		goals += " -mixed"
	}
	if o.goals {
		goals += " -goals"
	}
	if o.queueFor > 0 {
		goals += " -queue-for " + o.queueFor.String()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, fmt.Sprintf("%vagain with: go run ./internal/sim/run -world overload -seed %d -scenario %s -loads %v -deadlines %s -doors %s -clients %s%s\n",
		err, seed, c.scenario, c.load, c.deadline, doorOf(c), c.clients, goals))
}

func doorOf(c cell) string {
	if c.stream {
		return "stream"
	}
	return "request"
}

// worst is the worst of a figure over all seeds: the least, or the most.
func worst(reports []sim.OverloadReport, most bool, of func(*sim.OverloadReport) float64) float64 {
	var all []float64
	for i := range reports {
		all = append(all, of(&reports[i]))
	}
	if most {
		return slices.Max(all)
	}
	return slices.Min(all)
}

// print writes the tables: the worst of all seeds.
func (o *overloads) print(out io.Writer, cells []cell, lines bool) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	scenario := sim.OverloadScenario("")
	for _, c := range cells {
		all := o.reports[c]
		if len(all) == 0 {
			continue
		}
		figure := func(most bool, of func(*sim.OverloadReport) float64) float64 { return worst(all, most, of) }
		percent := func(most bool, of func(*sim.OverloadReport) float64) string {
			return fmt.Sprintf("%.0f %%", 100*figure(most, of))
		}
		if steady := c.scenario == sim.OverloadSteady; c.scenario != scenario {
			if scenario = c.scenario; steady {
				fmt.Fprintln(table, "scenario\tdoor\tC\tdeadline\toffered\tin time, of C\tlost, of accepted\tnot begun\trefused, of offered\tnot answered\tp50\tothers: in time\tp50\t")
			} else {
				fmt.Fprintln(table, "scenario\tdoor\tC\tdeadline\tbase\tin time, of what came later than\t\tlast minute: in time, of C\tlost, of accepted\tin time again after\ta lost task\tuntil a minute after, of C\tothers: in time\tp50\t")
			}
		}
		capacity := figure(false, func(r *sim.OverloadReport) float64 { return r.Capacity })
		lost := percent(true, func(r *sim.OverloadReport) float64 { return r.Lost })
		inTime := percent(false, func(r *sim.OverloadReport) float64 { return r.InTime })
		cost := fmt.Sprintf("%.1f T", figure(true, func(r *sim.OverloadReport) float64 { return r.Cost }))
		others := "\t\t"
		if o.others > 0 {
			others = fmt.Sprintf("%.1f %%\t%s\t", 100*figure(false, func(r *sim.OverloadReport) float64 { return r.OthersInTime }),
				time.Duration(figure(true, func(r *sim.OverloadReport) float64 { return float64(r.OthersP50) })).Round(100*time.Millisecond))
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f/s\t%s\t%v C\t", c.scenario, doorOf(c), capacity, c.deadline, c.load)
		if c.scenario == sim.OverloadSteady {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", inTime, lost,
				percent(true, func(r *sim.OverloadReport) float64 { return r.Expired }), percent(true, func(r *sim.OverloadReport) float64 { return r.Refused }),
				percent(true, func(r *sim.OverloadReport) float64 { return r.Silent }),
				time.Duration(figure(true, func(r *sim.OverloadReport) float64 { return float64(r.P50) })).Round(100*time.Millisecond), others)
			continue
		}
		back := "never"
		if figure(false, func(r *sim.OverloadReport) float64 { return float64(r.Recovered) }) >= 0 {
			back = fmt.Sprint(time.Duration(figure(true, func(r *sim.OverloadReport) float64 { return float64(r.Recovered) })))
		}
		bound := time.Duration(figure(true, func(r *sim.OverloadReport) float64 { return float64(r.Bound) })).Round(time.Second)
		during := percent(false, func(r *sim.OverloadReport) float64 { return r.During })
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", percent(false, func(r *sim.OverloadReport) float64 { return r.After }), bound, inTime, lost, back, cost, during, others)
	}
	_ = table.Flush() // what out does with it shows in the next line
	if lines {
		printLines(out, o.reports[cells[0]][0].Lines)
	}
}

// printLines writes what happened in each ten seconds.
func printLines(out io.Writer, lines []sim.OverloadLine) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "from\toffered\tof it refused\tin time\tended in time\tnot begun\tundone\tunread\tin flight\tspeed\tused\t")
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%.1f C\t%.0f %%\t%.0f %%\t%d\t%d\t%d\t%d\t%d\t%.2f\t%.2f\t\n", l.From, l.Load, percentOf(l.Refused, l.Offered), percentOf(l.Made, l.Offered),
			l.InTime, l.Expired, l.Undone, l.Unread, l.InFlight, l.Speed, l.Used)
	}
	_ = table.Flush() // as above
}

func percentOf(n, all int) float64 { return 100 * float64(n) / float64(max(1, all)) }

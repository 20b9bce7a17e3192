// Command fleet runs the real placement and takeover of many schedulers on a simulated database and NATS, and prints what
// it came to. What they take for what they are asked is in internal/sim.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"duly.dev/duly/internal/sim"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program; it returns its exit status: 1 for what must not be, 2 for flags that are no good.
func run(args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(errs)
	var cfg sim.FleetConfig
	flags.IntVar(&cfg.Nodes, "nodes", 20, "schedulers")
	flags.IntVar(&cfg.Partitions, "partitions", 256, "partitions")
	flags.IntVar(&cfg.Kill, "kill", 2, "nodes that die, are cut off, or are restarted")
	flags.Uint64Var(&cfg.Seed, "seed", 1, "of all that is drawn")
	flags.IntVar(&cfg.SQLWorkers, "sql-workers", 16, "statements that the database carries out at once")
	flags.IntVar(&cfg.NATSWorkers, "nats-workers", 4, "requests that NATS carries out at once")
	only := flags.String("scenario", "all", "one of start, restart, die, split, away, join; all: each")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	scenarios := sim.FleetScenarios()
	if *only != "all" {
		if !slices.Contains(scenarios, sim.Scenario(*only)) {
			fmt.Fprintf(errs, "fleet: scenario %q: want one of %v, or all\n", *only, scenarios)
			return 2
		}
		scenarios = []sim.Scenario{sim.Scenario(*only)}
	}
	if cfg.Nodes < 2 || cfg.Kill < 1 || cfg.Kill >= cfg.Nodes || cfg.Partitions < 1 || cfg.SQLWorkers < 1 || cfg.NATSWorkers < 1 || flags.NArg() > 0 {
		fmt.Fprintf(errs, "fleet: nodes %d, partitions %d, kill %d: want two nodes or more, one of them left, partitions, workers, and flags only\n",
			cfg.Nodes, cfg.Partitions, cfg.Kill)
		return 2
	}
	status := 0
	for _, cfg.Scenario = range scenarios {
		rep, err := sim.RunFleet(cfg)
		printReport(out, &rep)
		if err != nil {
			status = 1
			fmt.Fprintln(out, "broken:", strings.Join(rep.Broken, "\nbroken: "))
		}
	}
	return status
}

// printReport writes one scenario: a line of what it came to, and a table of what was asked.
func printReport(out io.Writer, rep *sim.FleetReport) {
	c := &rep.Config
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	fmt.Fprintf(out, "%s: %d nodes, %d partitions, %d of them hit: settled after %s; unread at most %s (median %s); must move %d, moved %d; a node has at most %d, had %d\n",
		c.Scenario, c.Nodes, c.Partitions, c.Kill, round(rep.Settled), round(rep.Unread), round(rep.Median), rep.Needed, rep.Moved, rep.Most, rep.Peak)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\ttotal\tmost in 1 s\ta second when idle\t")
	for _, n := range rep.Counts {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", n.What, n.Total, n.Peak, n.Idle)
	}
	_ = table.Flush() // what out does with it shows in the next line
	fmt.Fprintln(out)
}

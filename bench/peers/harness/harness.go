// Package harness gives the same work to durable execution libraries and measures
// all of them in the same way: a closed loop with a bounded number of tasks in
// flight, then the books. What a library needs to do the work is a Peer; all that
// could favour one of them is here, once.
package harness

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Peer is one library, put to the work.
type Peer interface {
	// Open brings the library's tables into the empty database and starts its
	// workers. Every task that ends is reported to ended, after its last result is
	// durable.
	Open(ctx context.Context, dsn string, ended Ended) error
	// Submit returns when the acceptance of all tasks is durable.
	Submit(ctx context.Context, tasks []Task) error
	// Close stops the workers, so that nothing is written any more.
	Close(ctx context.Context) error
}

// Ended reports the end of one task. An error is an end without all results.
type Ended func(number int, err error)

// Spec is a library and how it wants to be loaded.
type Spec struct {
	System string
	Module string // whose version is reported
	// Workers is the default of -workers, the tasks in flight, for so many steps.
	Workers func(steps int) int
	// Batch is how many tasks one Submit takes at most; 1 when the library has no
	// call that takes several.
	Batch int
	// Submitters is how many Submit calls are made at once; 0: one for every task
	// in flight, which is what callers of their own would be.
	Submitters int
	// Books is a query with one row: tasks known to the database, tasks that ended
	// with all their results, tasks with more results than steps. $1 is the number
	// of steps.
	Books func() string
	// Flags adds the library's own settings.
	Flags func(*flag.FlagSet)
	// New makes the peer when the flags are known.
	New func(Settings) (Peer, error)
	// Tuned says what was set otherwise than the library's defaults, and what was not.
	Tuned func(Settings) map[string]any
}

// Settings are the flags that all programs have.
type Settings struct {
	Steps   int
	Tasks   int
	Seconds float64
	Warmup  float64
	Workers int
	DSN     string
	JSON    string
	Analyze bool
	Command string // that does the same again
}

// drainLimit is how long accepted tasks may take to end when no more are offered.
const drainLimit = 60 * time.Second

// errBooks says that what the database holds is not what was accepted.
var errBooks = errors.New("the books do not balance")

// Program is what a peer's program does: Main, until a signal ends it. It returns the
// program's exit code.
func Program(spec Spec) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := Main(ctx, spec, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", spec.System, err)
		return 1
	}
	return 0
}

// Main runs one program: flags in, one JSON object on the last line of out.
func Main(ctx context.Context, spec Spec, args []string, out io.Writer) error {
	set, err := parse(spec, args)
	if err != nil {
		return err
	}
	result, err := Run(ctx, spec, set, out)
	if err != nil {
		return err
	}
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if set.JSON != "" {
		indented, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return fmt.Errorf("result: %w", err)
		}
		if err := os.WriteFile(set.JSON, append(indented, '\n'), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, string(line))
	if result.Lost != 0 || result.Doubled != 0 || result.Error != 0 {
		return fmt.Errorf("%w: %d lost, %d doubled, %d errors", errBooks, result.Lost, result.Doubled, result.Error)
	}
	return nil
}

func parse(spec Spec, args []string) (Settings, error) {
	var set Settings
	flags := flag.NewFlagSet(spec.System, flag.ContinueOnError)
	flags.IntVar(&set.Steps, "steps", 5, "steps of every task")
	flags.IntVar(&set.Tasks, "tasks", 0, "end the measurement after this many tasks ended in it; 0: after -seconds only")
	flags.Float64Var(&set.Seconds, "seconds", 20, "measure so long, after the warm-up")
	flags.Float64Var(&set.Warmup, "warmup", 5, "seconds of the same load before, not measured")
	flags.IntVar(&set.Workers, "workers", 0, "tasks in flight: accepted and not ended; 0: as many as suits the library best")
	flags.StringVar(&set.DSN, "dsn", "", "URL of an empty PostgreSQL database; none: start a throwaway cluster")
	flags.StringVar(&set.JSON, "json", "", "write the result to this file, too")
	flags.BoolVar(&set.Analyze, "analyze", true, "gather the planner's statistics between warm-up and measurement")
	if spec.Flags != nil {
		spec.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	set.Command = "go -C bench/peers/" + spec.System + " run ."
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "dsn" && f.Name != "json" { // where, not what
			set.Command += " -" + f.Name + "=" + f.Value.String()
		}
	})
	if set.Workers == 0 {
		set.Workers = spec.Workers(set.Steps)
	}
	if set.Steps < 1 || set.Workers < 1 || set.Seconds <= 0 || set.Warmup < 0 || set.Tasks < 0 || flags.NArg() != 0 {
		return set, fmt.Errorf("%s: -steps, -workers and -seconds are above 0, -warmup and -tasks not below, and there are no arguments besides", spec.System)
	}
	return set, nil
}

// Run does the work and returns what it measured.
func Run(ctx context.Context, spec Spec, set Settings, log io.Writer) (*Result, error) {
	store, err := openStore(ctx, set.DSN)
	if err != nil {
		return nil, err
	}
	defer store.close()
	store.analyze = set.Analyze
	peer, err := spec.New(set)
	if err != nil {
		return nil, err
	}
	l := newLoop(peer, spec, set)
	if err := peer.Open(ctx, store.dsn, l.ended); err != nil {
		return nil, fmt.Errorf("%s: %w", spec.System, err)
	}
	fmt.Fprintf(log, "%s %s: %d steps, %d tasks in flight, %s\n", spec.System, version(spec.Module), set.Steps, set.Workers, store.settings["server_version"])
	measured, err := l.measure(ctx, store)
	if err != nil {
		return nil, errors.Join(err, peer.Close(ctx))
	}
	drained := l.drain(ctx)
	if err := peer.Close(ctx); err != nil {
		return nil, fmt.Errorf("%s: stop: %w", spec.System, err)
	}
	books, err := store.books(ctx, spec.Books(), set.Steps)
	if err != nil {
		return nil, err
	}
	result := l.result(measured, books)
	result.System, result.Version = spec.System, version(spec.Module)
	result.Scenario, result.Store, result.Steps = "peak", "postgres", set.Steps
	result.Sync = "fsync " + store.settings["fsync"] + ", synchronous_commit " + store.settings["synchronous_commit"]
	result.Date = time.Now().UTC().Format(time.RFC3339)
	result.Machine = machine(store.settings["server_version"])
	result.Command = set.Command
	result.DrainSeconds = round(drained.Seconds(), 3)
	result.Settings = map[string]any{"in_flight": set.Workers, "submit_batch_max": spec.Batch, "submitters": l.submitters, "analyze": set.Analyze}
	maps.Copy(result.Settings, spec.Tuned(set))
	result.Postgres = store.settings
	fmt.Fprintf(log, "peak  %9.1f tasks/s %9.1f steps/s over %.1f s; submit p50 %.1f p99 %.1f ms; end to end p50 %.1f p99 %.1f ms\n",
		result.TasksPerS, result.StepsPerS, result.Seconds, result.Submit.P50, result.Submit.P99, result.EndToEnd.P50, result.EndToEnd.P99)
	fmt.Fprintf(log, "books %9d accepted %9d processed, %d lost, %d doubled, %d errors%s\n",
		result.Accepted, result.Processed, result.Lost, result.Doubled, result.Error, firstProblem(l.problem))
	return result, nil
}

func firstProblem(err error) string {
	if err == nil {
		return ""
	}
	return ": " + strings.ReplaceAll(err.Error(), "\n", " ")
}

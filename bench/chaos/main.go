package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The parts of a round that are this program again, in processes of their own.
const (
	partAgents = "agents"
	partClock  = "clock"
	partWork   = "work"
)

// settings of a round.
type settings struct {
	store   string
	seconds int
	rate    int
	over    float64 // times what the set-up can do is offered; 0: rate is
	seed    uint64
	only    string // kinds of faults, with commas; empty: all
	older   string // commit of the older binary
	dir     string
	work    string // workload; empty: deliveries alone
}

// errViolated ends the program with 1 after everything was said.
var errViolated = errors.New("a promise was broken, or something never recovered")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && (args[0] == partAgents || args[0] == partClock || args[0] == partWork) {
		return runPart(ctx, args)
	}
	s, err := parse(args)
	if err != nil {
		return err
	}
	if os.Getenv(namespaceEnv) == "" {
		return inNamespace(ctx, args)
	}
	return round(ctx, s, out)
}

// parse reads the flags; the environment gives their defaults.
func parse(args []string) (*settings, error) {
	var s settings
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.StringVar(&s.store, "store", env("CHAOS_STORE", storePostgres), "postgres (a throwaway server of this machine's binaries) or sqlite")
	seconds := f.String("seconds", env("CHAOS_SECONDS", "300"), "length of the load; a round always has every kind of fault once")
	rate := f.String("rate", env("CHAOS_RATE", ""), "deliveries a second; empty: 800")
	over := f.String("over", env("CHAOS_OVER", ""), "in place of -rate: so many times what this set-up can do, which is measured first")
	seed := f.String("seed", env("CHAOS_SEED", ""), "of the faults; empty: one by the clock, which is printed")
	f.StringVar(&s.only, "only", env("CHAOS_ONLY", ""), "these kinds of faults, with commas between, and no others; operators: all that hit what operators do")
	f.StringVar(&s.older, "older", env("CHAOS_OLDER", ""), "commit to build the older binary of an upgrade from; empty: the oldest that serves the present tables")
	f.StringVar(&s.work, "workload", env("CHAOS_WORKLOAD", ""), "run this example beside the deliveries, travel or payout, and close its books too; -only is then "+workloadKinds+" and -rate "+workloadDeliveries+", unless given")
	f.StringVar(&s.dir, "dir", env("CHAOS_DIR", ""), "where to work; empty: a temporary directory, kept where something was wrong")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("argument %q: want flags only", f.Arg(0))
	}
	switch {
	case *over != "" && *rate != "":
		return nil, fmt.Errorf("over: %q and rate: %q, want one of them (flags -over and -rate, variables CHAOS_OVER and CHAOS_RATE)", *over, *rate)
	case *over != "" && s.work != "":
		return nil, fmt.Errorf("over: %q beside workload %q, want -rate", *over, s.work)
	case *over != "":
		n, err := strconv.ParseFloat(*over, 64)
		if err != nil || !(n > 1 && n <= overMost) {
			return nil, fmt.Errorf("over: %q, want a number over 1, %d at most", *over, overMost)
		}
		s.over, *rate = n, strconv.Itoa(capacityGuess)
	}
	if *rate == "" && s.work != "" {
		*rate = workloadDeliveries
	} else if *rate == "" {
		*rate = "800"
	}
	if s.only == "" && s.work != "" {
		s.only = workloadKinds
	}
	if *seed == "" {
		*seed = strconv.FormatInt(time.Now().Unix(), 10)
	}
	var err error
	if s.seed, err = strconv.ParseUint(*seed, 10, 64); err != nil {
		return nil, fmt.Errorf("seed: %q, want a whole number", *seed)
	}
	if s.seconds, err = number("seconds", *seconds, 1, 86_400); err != nil {
		return nil, err
	}
	if s.rate, err = number("rate", *rate, 1, 20_000); err != nil {
		return nil, err
	}
	return &s, s.check()
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func number(name, text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s: %q, want %d to %d", name, text, least, most)
	}
	return n, nil
}

func (s *settings) check() error {
	if s.store != storePostgres && s.store != storeSQLite {
		return fmt.Errorf("store: %q, want postgres or sqlite", s.store)
	}
	if s.work != "" && workloads[s.work].build == nil {
		return fmt.Errorf("workload: %q, want travel or payout", s.work)
	}
	if s.only == "" {
		return nil
	}
	for _, name := range strings.Split(s.only, ",") {
		if name != onlyOperators && !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }) {
			return fmt.Errorf("only: %q is no kind of fault", name)
		}
	}
	if len(s.kinds()) == 0 {
		return fmt.Errorf("only: %q does not fit the store %q", s.only, s.store)
	}
	return nil
}

// load is what arrives, in words.
func (s *settings) load() string {
	if s.over > 0 {
		return fmt.Sprintf("%g times what can be done", s.over)
	}
	return fmt.Sprintf("%d deliveries a second", s.rate)
}

// kinds are the faults of the round, over all its stages.
func (s *settings) kinds() []*kind {
	var list []*kind
	for _, st := range stagesOf(s.store) {
		list = append(list, fitting(st.topology, s.only)...)
	}
	return list
}

// upgrades tells whether an older binary is among the faults.
func (s *settings) upgrades() bool {
	return slices.ContainsFunc(s.kinds(), func(k *kind) bool { return k.older })
}

// round runs every stage of a store and says what came of it.
func round(ctx context.Context, s *settings, out io.Writer) (err error) {
	dir := s.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "duly-chaos-"); err != nil {
			return fmt.Errorf("temporary directory: %w", err)
		}
	} else if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("dir: %w", err)
	}
	fmt.Fprintf(out, "chaos on %s: seed %d, %d s, %s; logs in %s\n", s.store, s.seed, s.seconds, s.load(), dir)
	programs, err := build(ctx, dir, s)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "older binary: %s\n", programs.olderIs)
	r := &report{Store: s.store, Seed: s.seed, ByFault: map[string]*faultReport{}}
	for _, st := range stagesOf(s.store) {
		st.work = s.work
		if err := runStage(ctx, s, &st, programs, dir, r, out); err != nil {
			return errors.Join(fmt.Errorf("stage %s: %w; everything is kept in %s", st.name, err, dir), r.write(out))
		}
	}
	if err := r.write(out); err != nil {
		return err
	}
	if !r.clean() {
		return fmt.Errorf("%w: logs are in %s", errViolated, dir)
	}
	if s.dir == "" {
		return os.RemoveAll(dir)
	}
	return nil
}

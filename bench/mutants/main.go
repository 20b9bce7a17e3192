package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// options are what the command line asks for.
type options struct {
	pattern          string
	list, table, sim bool
	jobs             int
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&o.pattern, "run", "", "only mutants whose name matches this `regexp`")
	flags.BoolVar(&o.list, "list", false, "show what there is and try nothing")
	flags.BoolVar(&o.sim, "sim", false, "also ask the simulator about each")
	flags.BoolVar(&o.table, "table", false, "write a table of what caught each at the end; the trials go to the standard error")
	flags.IntVar(&o.jobs, "j", 2, "how many to try at a time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(o.pattern)
	if err != nil {
		return err
	}
	if o.list {
		return list(os.Stdout, chosen)
	}
	if o.jobs < 1 || o.jobs > 64 {
		return fmt.Errorf("-j is %d, want 1 to 64", o.jobs)
	}
	root, err := module(ctx)
	if err != nil {
		return err
	}
	return trials(ctx, root, chosen, &o)
}

// choose is the mutants whose name matches.
func choose(pattern string) ([]mutant, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var chosen []mutant
	for _, m := range mutants {
		if match.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-run %q: no mutant of %d has such a name", pattern, len(mutants))
	}
	return chosen, nil
}

func list(w io.Writer, chosen []mutant) error {
	for i := range chosen {
		m := &chosen[i]
		if _, err := fmt.Fprintf(w, "%-32s %2d  %s: %s\n", m.name, m.invariant, m.file, m.fault); err != nil {
			return err
		}
	}
	return nil
}

// module is the root of the module that is mutated: the one beside which the laboratory stands.
func module(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(filepath.Dir(strings.TrimSpace(string(out)))), nil
}

// trials tries the chosen mutants, after the tests themselves, and reports.
func trials(ctx context.Context, root string, chosen []mutant, o *options) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return fmt.Errorf("folder for the trials: %w", err)
	}
	defer os.RemoveAll(dir)
	l := &lab{root: root, dir: dir, sim: o.sim}
	var progress io.Writer = os.Stdout
	if o.table {
		progress = os.Stderr
	}
	began := time.Now()
	if err := l.healthy(ctx, chosen); err != nil {
		return err
	}
	fmt.Fprintf(progress, "without a mutant all these tests pass (%.1f s)\n", time.Since(began).Seconds())
	verdicts := l.tryAll(ctx, chosen, o.jobs, progress)
	if err := ctx.Err(); err != nil {
		return err
	}
	if o.table {
		if err := writeTable(os.Stdout, root, chosen, verdicts); err != nil {
			return err
		}
	}
	return summary(progress, chosen, verdicts, time.Since(began))
}

// healthy runs the named tests without any fault: what fails already catches
// nothing.
func (l *lab) healthy(ctx context.Context, chosen []mutant) error {
	overlay := filepath.Join(l.dir, "none.json")
	if err := os.WriteFile(overlay, []byte(`{"Replace": {}}`), 0o600); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	runs := map[string][]string{}
	for i := range chosen {
		runs[chosen[i].folder()] = append(runs[chosen[i].folder()], chosen[i].run)
	}
	if l.sim {
		runs[simFolder] = append(runs[simFolder], simTests)
	}
	for folder, patterns := range runs {
		failed, err := l.test(ctx, "none", folder, overlay, strings.Join(patterns, "|"), testTimeout)
		if err == nil && len(failed) > 0 {
			err = errors.New(strings.Join(failed, ", ") + " failed")
		}
		if err != nil {
			return fmt.Errorf("without a mutant, in %s: %w", folder, err)
		}
	}
	return nil
}

// tryAll tries jobs mutants at a time and says of each what became of it.
func (l *lab) tryAll(ctx context.Context, chosen []mutant, jobs int, progress io.Writer) []verdict {
	verdicts := make([]verdict, len(chosen))
	next := make(chan int)
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range jobs {
		wait.Go(func() {
			for i := range next {
				verdicts[i] = l.try(ctx, &chosen[i])
				if ctx.Err() != nil {
					continue // it was broken off
				}
				mu.Lock()
				fmt.Fprintln(progress, line(&chosen[i], &verdicts[i]))
				mu.Unlock()
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	wait.Wait()
	return verdicts
}

// line says what became of a mutant.
func line(m *mutant, v *verdict) string {
	what := "SURVIVED " + m.run + " in " + m.folder()
	switch {
	case v.err != nil:
		what = "ERROR " + v.err.Error()
	case v.caught():
		const most = 3
		what = "caught by " + strings.Join(v.by[:min(most, len(v.by))], ", ")
		if more := len(v.by) - most; more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
	}
	if v.sim != "" {
		what += "; simulator: " + v.sim
	}
	return fmt.Sprintf("%-32s %5.1f s  %s", m.name, v.took.Seconds(), what)
}

// summary counts; the last line is for scripts.
func summary(w io.Writer, chosen []mutant, verdicts []verdict, took time.Duration) error {
	caught, noticed, asked := 0, 0, 0
	var left []string
	for i := range chosen {
		v := &verdicts[i]
		if v.caught() {
			caught++
		} else {
			left = append(left, chosen[i].name)
		}
		if v.sim != "" {
			asked++
		}
		if strings.HasPrefix(v.sim, "yes") {
			noticed++
		}
	}
	if asked > 0 {
		fmt.Fprintf(w, "the simulator notices %d of %d\n", noticed, asked)
	}
	fmt.Fprintf(w, "%.0f s\nmutants: %d caught of %d\n", took.Seconds(), caught, len(chosen))
	if len(left) > 0 {
		return fmt.Errorf("not caught: %s", strings.Join(left, ", "))
	}
	return nil
}

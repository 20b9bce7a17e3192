package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The simulator, which is asked about every mutant of what it runs.
const (
	simFolder  = "internal/sim"
	simTests   = "^TestStormThenCalm$"
	simTimeout = time.Minute
)

// lab is where mutants are tried.
type lab struct {
	root string // of the module
	dir  string // for copies and test programs
	sim  bool   // ask the simulator too
}

// verdict is what became of one mutant.
type verdict struct {
	by   []string // tests that failed; none: it survived
	sim  string   // what the simulator said; see noticed
	took time.Duration
	err  error // the list or the machine is at fault
}

func (v *verdict) caught() bool { return v.err == nil && len(v.by) > 0 }

// ErrTimeout is wrapped when tests ran out of time.
var ErrTimeout = errors.New("the tests ran out of time")

// try builds the tests with the fault and runs them.
func (l *lab) try(ctx context.Context, m *mutant) verdict {
	began := time.Now()
	var v verdict
	overlay, err := l.overlay(m)
	if err == nil {
		v.by, err = l.test(ctx, m.name, m.folder(), overlay, m.run, m.timeout())
	}
	if m.hangs && errors.Is(err, ErrTimeout) {
		err = nil
	}
	if err == nil && l.sim && m.simulated() {
		v.sim, err = l.simulate(ctx, m.name, overlay)
	}
	v.err, v.took = err, time.Since(began)
	return v
}

// simulate says whether the simulator notices the fault on its own.
func (l *lab) simulate(ctx context.Context, name, overlay string) (string, error) {
	by, err := l.test(ctx, name+".sim", simFolder, overlay, simTests, simTimeout)
	switch {
	case errors.Is(err, ErrTimeout):
		return "yes, it hangs", nil
	case err != nil:
		return "", fmt.Errorf("simulator: %w", err)
	case len(by) > 0:
		return "yes", nil
	}
	return "no", nil
}

// overlay writes the changed file and what tells the compiler to take it.
func (l *lab) overlay(m *mutant) (string, error) {
	text, err := m.apply(l.root)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(l.dir, m.name+".go"), filepath.Join(l.dir, m.name+".json")
	list, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(l.root, filepath.FromSlash(m.file)): changed},
	})
	if err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	return overlay, errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600))
}

// test gives the tests of a folder that fail. An error wraps ErrTimeout, with
// the tests that were running, or says that there was no trial.
func (l *lab) test(ctx context.Context, name, folder, overlay, run string, timeout time.Duration) ([]string, error) {
	program := filepath.Join(l.dir, name+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-o", program, "-overlay", overlay, "./"+folder)
	build.Dir = l.root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s does not build: %w\n%s", folder, err, out)
	}
	defer os.Remove(program)
	// Its own limit ends it with the names of the tests that hang; the context only
	// if that fails.
	ctx, cancel := context.WithTimeout(ctx, timeout+30*time.Second)
	defer cancel()
	tests := exec.CommandContext(ctx, program, append([]string{"-test.run", run, "-test.timeout", timeout.String(), "-test.paniconexit0"}, l.quietly(folder)...)...)
	tests.Dir = filepath.Join(l.root, filepath.FromSlash(folder))
	tests.WaitDelay = 5 * time.Second // what a test started may hold its output open
	out, err := tests.CombinedOutput()
	return judge(string(out), err)
}

// quietly keeps random tests from writing down in the tree what made them fail.
func (l *lab) quietly(folder string) []string {
	files, _ := filepath.Glob(filepath.Join(l.root, filepath.FromSlash(folder), "*_test.go")) // the pattern is a good one
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			return []string{"-rapid.nofailfile"}
		}
	}
	return nil
}

var (
	failLine  = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	hungLine  = regexp.MustCompile(`(?m)^\t+(Test\S+) \(\d\S*\)$`)
	timedOut  = "panic: test timed out after"
	noTests   = "testing: warning: no tests to run"
	panicLine = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*$`)
)

// judge reads what a test program said.
func judge(out string, err error) ([]string, error) {
	failed := names(failLine, out)
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case strings.Contains(out, noTests):
		return nil, errors.New("no test has that name")
	case err == nil:
		return nil, nil
	case strings.Contains(out, timedOut):
		return names(hungLine, out), ErrTimeout
	case !exited || exit.ExitCode() < 0:
		return nil, fmt.Errorf("tests: %w\n%s", err, tail(out))
	case len(failed) == 0 && !panicLine.MatchString(out):
		return nil, fmt.Errorf("tests: %w, and no test failed\n%s", err, tail(out))
	case len(failed) == 0:
		return []string{panicLine.FindString(out)}, nil
	}
	return failed, nil
}

// names are the tests that a pattern finds, each once, without those whose
// subtests say it better.
func names(line *regexp.Regexp, out string) []string {
	var all []string
	for _, found := range line.FindAllStringSubmatch(out, -1) {
		if !slices.Contains(all, found[1]) {
			all = append(all, found[1])
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

func tail(out string) string {
	const most = 2000
	if len(out) > most {
		return "…" + out[len(out)-most:]
	}
	return out
}

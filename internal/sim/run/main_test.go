package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The last line counts, and so does the exit status.
func TestLastLine(t *testing.T) {
	var out strings.Builder
	if status := run([]string{"-seeds", "3", "-seed", "40", "-workers", "2", "-faults"}, &out, io.Discard); status != 0 {
		t.Fatalf("status %d\n%s", status, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !regexp.MustCompile(`^sim: 3 seeds, [1-9]\d+ events, 0 violations$`).MatchString(last) {
		t.Errorf("last line %q", last)
	}
	if len(lines) < 20 {
		t.Errorf("%d lines, want one for each fault that happened:\n%s", len(lines), &out)
	}
}

// Operators who meddle with everything, while the database goes back in every world.
func TestOperators(t *testing.T) {
	var out strings.Builder
	if status := run([]string{"-world", "linear", "-seeds", "200", "-operators", "-faults"}, &out, io.Discard); status != 0 {
		t.Fatalf("status %d\n%s", status, &out)
	}
	if !regexp.MustCompile(`(?m)^ +[1-9]\d\d  SQL went back$`).MatchString(out.String()) {
		t.Errorf("the database seldom went back:\n%s", &out)
	}
}

// Database and streams are restored from copies of different times in every world.
func TestCopiesOfTwoTimes(t *testing.T) {
	var out strings.Builder
	if status := run([]string{"-seeds", "150", "-both", "-faults"}, &out, io.Discard); status != 0 {
		t.Fatalf("status %d\n%s", status, &out)
	}
	if !regexp.MustCompile(`(?m)^ +[1-9]\d\d  both restored$`).MatchString(out.String()) {
		t.Errorf("they were seldom restored:\n%s", &out)
	}
}

// Worlds whose nodes use SQLite itself, which is held to the simulator's own store at each read and write.
//
// covers: Q3
func TestOnSQLite(t *testing.T) {
	var out strings.Builder
	if status := run([]string{"-seeds", "17", "-seed", "1000", "-store", "sqlite"}, &out, io.Discard); status != 0 {
		t.Fatalf("status %d\n%s", status, &out)
	}
}

// A world of overload prints a table, and of one run what happened in each ten seconds; goals that are missed are violations.
func TestOverload(t *testing.T) {
	args := strings.Fields("-world overload -scenario steady -loads 3 -deadlines 5s -doors request -length 20s -tenants 2 -tenant-load 0.05")
	var out strings.Builder
	if status := run(args, &out, io.Discard); status != 0 {
		t.Fatalf("status %d\n%s", status, &out)
	}
	for _, want := range []string{`(?m)^ *scenario +door +C +deadline .* others: in time +p50`, `(?m)^ *steady +request +\d+/s +5s +3 C +\d+ %`, `(?m)^ *10s +[23].\d C`, `1 worlds of overload in .*, 0 violations`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no line like %s:\n%s", want, &out)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range []string{"-seeds -1", "-workers 0", "-world round", "-tasks -2", "more", "-cpuprofile /no/such/folder/x", "-store other", "-what",
		"-world overload -scenario war", "-world overload -doors back", "-world overload -clients angry", "-world overload -loads 0", "-world overload -deadlines 1", "-world overload -tenants -1"} {
		var errs strings.Builder
		if status := run(strings.Fields(args), io.Discard, &errs); status != 2 || errs.Len() == 0 {
			t.Errorf("%s: status %d, said %q", args, status, &errs)
		}
	}
}

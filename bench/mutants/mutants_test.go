package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the module's folder.
const root = "../.."

// TestListIsFresh: every fault still fits its file, and the tests that must
// catch it are there.
func TestListIsFresh(t *testing.T) {
	names := map[string]bool{}
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for i := range mutants {
		m := &mutants[i]
		if !name.MatchString(m.name) || names[m.name] {
			t.Errorf("mutant %q: its name is taken, or not words joined by -", m.name)
		}
		names[m.name] = true
		if m.invariant < 1 || m.invariant > 12 || m.fault == "" || strings.ContainsAny(m.fault, "|\n") || m.old == m.new {
			t.Errorf("mutant %s: %+v", m.name, *m)
		}
		changed, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, changed, parser.SkipObjectResolution); err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
		}
		tests := regexp.MustCompile(`Test\w+`).FindAllString(m.run, -1)
		if len(tests) == 0 || !strings.HasPrefix(m.run, "^") {
			t.Errorf("mutant %s: -run %q names no test", m.name, m.run)
		}
		for _, test := range tests {
			if _, err := testFile(root, m.folder(), test); err != nil {
				t.Errorf("mutant %s: %v", m.name, err)
			}
		}
	}
	if len(names) < 100 {
		t.Errorf("%d mutants", len(names))
	}
}

// TestPageIsFresh: docs/faults.md has a row for every mutant, and for nothing
// else, as the list has it now.
func TestPageIsFresh(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Mutants\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got, want []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 6 && cells[0] != "| mutant" {
			got = append(got, strings.Join(cells[:4], " | "))
		}
	}
	for i := range mutants {
		m := &mutants[i]
		where, err := m.where(root)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "| "+strings.Join([]string{m.name, strconv.Itoa(m.invariant), m.fault, where}, " | "))
	}
	for _, row := range want {
		if !slices.Contains(got, row) {
			t.Errorf("docs/faults.md has no row %s", row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			t.Errorf("docs/faults.md has a row of no mutant: %s", row)
		}
	}
	if t.Failed() {
		t.Log("make the table again: go -C bench run ./mutants -sim -table")
	}
}

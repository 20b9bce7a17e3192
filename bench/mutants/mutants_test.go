package main

import (
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// root is the module's folder.
const root = "../.."

// TestListIsFresh: every fault names the invariant that it breaks and still fits its file, and the tests that must
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
	if len(names) < 60 {
		t.Errorf("%d mutants", len(names))
	}
}

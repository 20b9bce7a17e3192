package law

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanted runs the checks over testdata/planted, where every kind of breach
// was planted once and marked at the end of its line: // breach: part of the text.
// The checks must find exactly the marked lines.
func TestPlanted(t *testing.T) {
	tree, err := read(filepath.Join("testdata", "planted"))
	if err != nil {
		t.Fatal(err)
	}
	type spot struct {
		file string
		line int
	}
	want := map[spot]string{}
	for _, dir := range tree {
		for _, f := range dir.files {
			for _, group := range f.ast.Comments {
				for _, comment := range group.List {
					if text, ok := strings.CutPrefix(comment.Text, "// breach: "); ok {
						want[spot{f.name, f.fset.Position(comment.Pos()).Line}] = text
					}
				}
			}
		}
	}
	if len(want) < 20 {
		t.Fatalf("only %d planted breaches found, want 20 or more", len(want))
	}
	for _, got := range tree.breaches() {
		at := spot{got.file, got.line}
		text, planted := want[at]
		if !planted || !strings.Contains(got.text, text) {
			t.Errorf("found %v, planted %q", got, text)
		}
		delete(want, at)
	}
	for at, text := range want {
		t.Errorf("%s:%d: planted %q, not found", at.file, at.line, text)
	}
}

func TestIsWireName(t *testing.T) {
	for value, want := range map[string]bool{
		"duly.do.account.check": true,
		"duly.submit.>":         true,
		"duly.plans.changed":    true,
		"duly.reply":            true,
		"duly.":                 true,
		"duly.%s.%s":            true,
		"duly.dev/duly":         false,
		"duly.db":               false,
		"duly.doing":            false,
		"duly":                  false,
		"request duly.submit.x": true,
		"DULY_TASKS":            true,
		"KV_DULY_NODES":         true,
		"$KV.DULY_KEYS.>":       true,
		"stream DULY_DEAD":      true,
		"DULY_":                 true,
		"DULY_%s":               true,
		"DULY_URL":              false,
		"duly-":                 true,
		"duly-dev-":             false,
	} {
		if got := isWireName(value); got != want {
			t.Errorf("isWireName(%q) = %v, want %v", value, got, want)
		}
	}
}

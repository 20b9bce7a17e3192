package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRows: each row counts in testdata/tree what its definition says.
func TestRows(t *testing.T) {
	m, err := read(filepath.Join("testdata", "tree"))
	if err != nil {
		t.Fatal(err)
	}
	if m.untyped != nil {
		t.Fatal(m.untyped)
	}
	want := map[string]string{
		"product code": "97; kernel 72",
		"make test":    notMeasured,
		// shard.go and wake.go use each other; order.go uses both and nothing uses it.
		"cycle": "2 of 3; 1",
		// submit, wake, wrapped.again; not Committer.Run.
		"Shard": "3; 2; 3",
		// Only n is written in both files, ready is too by its address; functions by the fields that they name.
		"writers of a field":          "0, 2, 0; 1, 3, 1 of 6",
		"step state":                  "6",
		"claims":                      "1",
		"askers":                      "1 in 1 files",
		"wakers":                      "2 in 2 files",
		"audit":                       "2 in 1 files",
		"a new column of a task":      "4 in 4 files",
		"a new operator verb":         "3 files",
		"journal formats; migrations": "2; 2",
		"settings":                    "2",
		"dependencies":                "2",
		"exported":                    "20; 8, of which 1 Default…",
		"comments":                    "9.5, 4.1, 0.0, 0.0 %",
		"words of docs":               "6",
	}
	for i := range rows {
		if got := rows[i].now(m); got != want[rows[i].name] {
			t.Errorf("%s: %s, want %q", rows[i].name, got, want[rows[i].name])
		}
	}
	if len(want) != len(rows) {
		t.Errorf("%d rows, %d are tested", len(rows), len(want))
	}
}

// TestMinutes: the parts are added up, unless the run says its total.
func TestMinutes(t *testing.T) {
	m := &measured{root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"60\tlint\n90.0\tgo test\n": "2.5 min", "60\tlint\n90\tgo test\n120\ttotal\n": "2.0 min"} {
		if err := os.WriteFile(filepath.Join(m.root, "bin", "test-times.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := testMinutes(m); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestUntyped: a tree that does not compile has the rows of its text.
func TestUntyped(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.test/broken\n\ngo 1.26.0\n", "a.go": "package a\n\nvar x int = missing\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	if m.untyped == nil || !strings.Contains(m.untyped.Error(), "missing") {
		t.Errorf("untyped: %v", m.untyped)
	}
	for i := range rows {
		if got := rows[i].now(m); rows[i].typed != nil && got != notMeasured {
			t.Errorf("%s: %s", rows[i].name, got)
		}
	}
}

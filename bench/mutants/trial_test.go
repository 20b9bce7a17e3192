package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// planted is a module of its own to try mutants on.
func planted(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module planted\n\ngo 1.24\n",
		"x/x.go":      "package x\n\nfunc half(n int) int { return n / 2 }\n",
		"x/x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestHalf(t *testing.T) {\n\tt.Run(\"four\", func(t *testing.T) {\n\t\tif half(4) != 2 {\n\t\t\tt.Error(half(4))\n\t\t}\n\t})\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return &lab{root: dir, dir: t.TempDir()}
}

// A fault is caught by the test that it fails; one that makes no difference
// survives; whatever is no trial is an error, and the tree is as it was.
func TestTrials(t *testing.T) {
	l := planted(t)
	for _, test := range []struct {
		name, old, new, run string
		by                  []string
		err                 string
	}{
		{"caught", "n / 2", "n / 3", "^TestHalf$", []string{"TestHalf/four"}, ""},
		{"panics", "n / 2", "n / (n - 4)", "^TestHalf$", []string{"TestHalf/four"}, ""},
		{"survives", "n / 2", "n >> 1", "^TestHalf$", nil, ""},
		{"does not build", "n / 2", "n / m", "^TestHalf$", nil, "does not build"},
		{"no such text", "n / 9", "n", "^TestHalf$", nil, "0 times, want once"},
		{"text twice", "n", "m", "^TestHalf$", nil, "times, want once"},
		{"no such test", "n / 2", "n / 3", "^TestQuarter$", nil, "no test has that name"},
	} {
		m := mutant{name: "planted", file: "x/x.go", old: test.old, new: test.new, run: test.run}
		v := l.try(t.Context(), &m)
		if test.err == "" && v.err != nil || test.err != "" && (v.err == nil || !strings.Contains(v.err.Error(), test.err)) {
			t.Errorf("%s: error %v, want %q", test.name, v.err, test.err)
		}
		if !slices.Equal(v.by, test.by) || v.caught() != (test.by != nil) {
			t.Errorf("%s: caught by %q, want %q", test.name, v.by, test.by)
		}
	}
	if text, err := os.ReadFile(filepath.Join(l.root, "x", "x.go")); err != nil || !strings.Contains(string(text), "n / 2") {
		t.Errorf("the tree was touched: %s, %v", text, err)
	}
}

// What fails without a mutant proves nothing.
func TestUnhealthyTests(t *testing.T) {
	l := planted(t)
	file := filepath.Join(l.root, "x", "x.go")
	if err := os.WriteFile(file, []byte("package x\n\nfunc half(n int) int { return n / 5 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := l.healthy(t.Context(), []mutant{{name: "planted", file: "x/x.go", run: "^TestHalf$"}})
	if err == nil || !strings.Contains(err.Error(), "without a mutant, in x: TestHalf/four failed") {
		t.Errorf("error %v", err)
	}
}

const hung = `panic: test timed out after 20s
	running tests:
		TestWaits (20s)
		TestSuite/waits_too (19s)

goroutine 7 [running]:
`

// Running out of time is a catch where the list says so, and only there.
func TestHanging(t *testing.T) {
	failed, err := judge(hung, errors.New("exit status 2"))
	if want := []string{"TestWaits", "TestSuite/waits_too"}; !errors.Is(err, ErrTimeout) || !slices.Equal(failed, want) {
		t.Errorf("judged %q, %v, want %q", failed, err, want)
	}
}

// The last line counts, and what is left is an error that names it.
func TestSummary(t *testing.T) {
	chosen := []mutant{{name: "one"}, {name: "two"}, {name: "three"}}
	verdicts := []verdict{{by: []string{"TestOne"}, sim: "yes, it hangs"}, {sim: "no"}, {by: []string{"TestThree"}, err: ErrTimeout}}
	var b strings.Builder
	err := summary(&b, chosen, verdicts, 0)
	if err == nil || err.Error() != "not caught: two, three" {
		t.Errorf("error %v", err)
	}
	if want := "the simulator notices 1 of 2\n0 s\nmutants: 1 caught of 3\n"; b.String() != want {
		t.Errorf("summary %q, want %q", b.String(), want)
	}
	if err := summary(&b, chosen[:1], verdicts[:1], 0); err != nil {
		t.Error(err)
	}
}

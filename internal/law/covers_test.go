package law

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of situations in docs/faults.md")

// situations are those in which systems of this kind were seen to fail, and Duly was, when it was tried there. A test says
// with a line "covers: A1, B2" of its comment which of them it guards.
var situations = []struct{ id, text string }{
	{"A1", "the database fails over to a standby that is behind, while nodes run"},
	{"A2", "numbers are given again after that, and a reply to one task's command comes to another's"},
	{"A3", "the database is restored from a backup that is older than tasks that have ended"},
	{"A4", "epochs in the restored database are below those of the consumers"},
	{"A5", "the task stream is deleted, or lost, and made again while a node runs"},
	{"A6", "the task stream comes back shorter"},
	{"A7", "another stream or bucket is lost"},
	{"A8", "a node of another installation on the same NATS"},
	{"A9", "two nodes of one name"},
	{"B1", "NATS refuses the password, again and again"},
	{"B2", "the database is read-only, full, frozen, or refuses what it is asked"},
	{"B3", "NATS comes back empty"},
	{"B4", "a stream is full, or met a write error"},
	{"B5", "limits of the account on NATS"},
	{"B6", "a migration behind a backup's lock; an index on a large table"},
	{"B7", "a pooler between Duly and PostgreSQL"},
	{"B8", "a stop in the middle of trouble"},
	{"B9", "a clock that is wrong"},
	{"B10", "an agent's user may not subscribe"},
	{"B11", "no agent serves a step"},
	{"B12", "the event stream is away"},
	{"B13", "a node dies, the database or NATS is away: who is told, and how often"},
	{"C1", "typed values are those of encoding/json, whatever their size"},
	{"C2", "another input, or another type, under an id that is taken"},
	{"C3", "a watch that begins after the end; reading and listing tasks"},
	{"C4", "a cancellation that changes nothing, or of an unknown id"},
	{"C5", "a version of a plan that was not applied"},
	{"C6", "an undo that fails again and again, and one that gives up"},
	{"C7", "tables of another version than the binary's"},
	{"C8", "unknown parameters of a request"},
	{"C9", "a context of the nats command"},
	{"C10", "strangers and web pages at the HTTP address"},
	{"C11", "the key of replies, which only schedulers need"},
	{"C12", "passwords in what is logged, told or answered"},
	{"C13", "ids that are no names, and errors about them"},
	{"C14", "which step failed, at whose instance, in words that can be grouped"},
	{"C15", "plans and options that cannot be meant"},
	{"C16", "lists and counts of many tasks"},
	{"C17", "users with no more rights than they need"},
}

// extra begins what tests and their helpers may name besides: mutations that no test had caught.
const extra = "D"

const coversMark = "covers:"

// covered are the tests of each situation, as "file: Test".
func covered(tree forest) (tests map[string][]string, problems []string) {
	tests = map[string][]string{}
	known := map[string]bool{}
	for _, s := range situations {
		known[s.id] = true
	}
	for _, dir := range tree {
		for _, f := range dir.files {
			belongs := map[int]bool{} // lines that belong to a test
			for _, t := range testsOf(f) {
				for _, id := range idsIn(t.doc) {
					if !known[id] && !strings.HasPrefix(id, extra) {
						problems = append(problems, fmt.Sprintf("%s: %s covers %s, which is no situation", f.name, t.name, id))
					}
					tests[id] = append(tests[id], f.name+": "+t.name)
				}
				for line := t.from; line <= t.to; line++ {
					belongs[line] = true
				}
			}
			for _, group := range f.ast.Comments {
				for _, c := range group.List {
					line := f.fset.Position(c.Pos()).Line
					ids := idsIn(strings.TrimPrefix(c.Text, "//"))
					if len(ids) > 0 && !strings.HasPrefix(ids[0], extra) && !belongs[line] {
						problems = append(problems, fmt.Sprintf("%s:%d: %q stands above no test", f.name, line, c.Text))
					}
				}
			}
		}
	}
	for id := range tests {
		slices.Sort(tests[id])
	}
	return tests, problems
}

// idsIn are the ids after the mark in the lines of a comment.
func idsIn(doc string) (all []string) {
	for line := range strings.Lines(doc) {
		if list, ok := strings.CutPrefix(strings.TrimSpace(line), coversMark); ok {
			for _, id := range strings.Split(list, ",") {
				all = append(all, strings.TrimSpace(id))
			}
		}
	}
	return all
}

// coverTable is the table of docs/faults.md.
func coverTable(tests map[string][]string) string {
	var b strings.Builder
	b.WriteString("| id | situation | tests |\n|---|---|---|\n")
	for _, s := range situations {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.id, s.text, cmp.Or(byFile(tests[s.id]), "–"))
	}
	return b.String()
}

// byFile names each file once: "a_test.go: TestA, TestB; b_test.go: TestC".
func byFile(tests []string) string {
	var b strings.Builder
	last := ""
	for _, t := range tests {
		file, name, _ := strings.Cut(t, ": ")
		switch {
		case last == file:
			b.WriteString(", " + name)
		case last == "":
			b.WriteString(t)
		default:
			b.WriteString("; " + t)
		}
		last = file
	}
	return b.String()
}

// TestSituationsAreCovered: each situation has a test, and docs/faults.md names them all as they are.
func TestSituationsAreCovered(t *testing.T) {
	root := repository(t)
	tree, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	tests, problems := covered(tree)
	for _, p := range problems {
		t.Error(p)
	}
	for _, s := range situations {
		if len(tests[s.id]) == 0 {
			t.Errorf("%s (%s) has no test", s.id, s.text)
		}
	}
	page := text(t, faultsPage)
	before, rest, found := strings.Cut(page, "| id | situation | tests |\n")
	_, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table of situations", faultsPage)
	}
	fresh := before + coverTable(tests) + "\n" + after
	if *update {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(faultsPage)), []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if fresh != page {
		t.Errorf("the table of situations in %s is not fresh: go test ./internal/law -run Situations -update", faultsPage)
	}
}

// TestCoversPlanted shows that the check can fail.
func TestCoversPlanted(t *testing.T) {
	tree, err := read(filepath.Join("testdata", "covers"))
	if err != nil {
		t.Fatal(err)
	}
	tests, problems := covered(tree)
	if got := byFile(tests["A1"]); got != "a_test.go: TestOne, TestTwo" {
		t.Errorf("A1 is covered by %q", got)
	}
	if got := byFile(tests["B2"]); got != "a_test.go: TestTwo" {
		t.Errorf("B2 is covered by %q", got)
	}
	for _, want := range []string{"TestTwo covers Z9, which is no situation", "stands above no test"} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("problems %q, want one that says %s", problems, want)
		}
	}
	if len(problems) != 2 {
		t.Errorf("%d problems: %q", len(problems), problems)
	}
}

// testFunc is a test with its comment and the lines that both take.
type testFunc struct {
	name, doc string
	from, to  int
}

// testsOf are the tests of a file.
func testsOf(f file) (all []testFunc) {
	for _, decl := range f.ast.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok || d.Recv != nil || !f.test || !strings.HasPrefix(d.Name.Name, "Test") || d.Doc == nil {
			continue
		}
		all = append(all, testFunc{d.Name.Name, d.Doc.Text(), f.fset.Position(d.Doc.Pos()).Line, f.fset.Position(d.Doc.End()).Line})
	}
	return all
}

package law

import (
	"flag"
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pages that tell which test covers what")

// coverPages are the pages that are written from the marks of the tests.
var coverPages = []struct {
	file, title, about string
	sections           []section
}{
	{
		"docs/generated/requirements.md", "Requirements and their tests",
		"S is the Scheduler Agent Supervisor pattern, I is \"Designing microservices: Ingestion and workflow\", G a gap of theirs that was decided here, D a defect of their reference application, T what a shallow build skips. Open says what is not built, not proved or wrong today.",
		requirements,
	},
	{
		"docs/generated/invariants.md", "Invariants and their tests",
		"What holds at every commit and every effect. The simulator judges each of its runs by them, and each mutant breaks one.",
		invariants,
	},
	{
		"docs/generated/situations.md", "Situations and their tests",
		"Where systems of this kind were seen to fail, and Duly was when it was tried there.",
		situations,
	},
	{
		"docs/generated/open.md", "What is open",
		"What must hold and, after Open, what is wrong today. What is not open any more names its tests.",
		faults,
	},
	{
		"docs/operators-criteria.md", "What makes the tools of operators good, and its tests",
		"Each criterion comes from what users of other systems ask for.",
		criteria,
	},
}

// pageColumns is where a line of a generated page ends, if a word does.
const pageColumns = 118

const coversMark = "covers:"

// mark is what one line says that a test covers.
type mark struct {
	ids     []string
	subtest string // of a suite; empty: the whole test
}

// markOf reads a line such as "covers: A1, B2" or "covers: S20 in view".
func markOf(line string) (mark, bool) {
	list, ok := strings.CutPrefix(strings.TrimSpace(line), coversMark)
	if !ok {
		return mark{}, false
	}
	list, subtest, _ := strings.Cut(list, " in ")
	m := mark{subtest: strings.TrimSpace(subtest)}
	for id := range strings.SplitSeq(list, ",") {
		m.ids = append(m.ids, strings.TrimSpace(id))
	}
	return m, true
}

// marksIn are the marks in the lines of a comment.
func marksIn(doc string) (all []mark) {
	for line := range strings.Lines(doc) {
		if m, ok := markOf(line); ok {
			all = append(all, m)
		}
	}
	return all
}

// subjects are the ids of all pages. An id that is there twice is told.
func subjects() (known map[string]bool, problems []string) {
	known = map[string]bool{}
	for _, page := range coverPages {
		for _, section := range page.sections {
			for _, s := range section.subjects {
				if known[s.id] {
					problems = append(problems, s.id+" is there twice")
				}
				known[s.id] = true
			}
		}
	}
	return known, problems
}

// covering are the tests of each subject: by id, then by folder.
type covering map[string]map[string][]string

func (c covering) add(id, folder, test string) {
	if c[id] == nil {
		c[id] = map[string][]string{}
	}
	if !slices.Contains(c[id][folder], test) {
		c[id][folder] = append(c[id][folder], test)
	}
}

// covered collects the marks of all tests, and of the scripts below root that tests play.
func (s source) covered(tree forest) (covering, []string) {
	tests := covering{}
	known, problems := subjects()
	note := func(file, folder, test string, m mark) {
		if m.subtest != "" {
			if !s.subtest(folder, m.subtest) {
				problems = append(problems, fmt.Sprintf("%s: %s has no subtest %s", file, test, m.subtest))
				return
			}
			test += "/" + m.subtest
		}
		for _, id := range m.ids {
			if !known[id] {
				problems = append(problems, fmt.Sprintf("%s: %s covers %s, which is nothing that is known", file, test, id))
			}
			tests.add(id, folder, test)
		}
	}
	for _, dir := range tree {
		for _, f := range dir.files {
			belongs := map[int]bool{} // lines that belong to a test
			for _, t := range testsOf(f) {
				for _, m := range marksIn(t.doc) {
					note(f.name, dir.name, t.name, m)
				}
				for line := t.from; line <= t.to; line++ {
					belongs[line] = true
				}
			}
			problems = append(problems, f.strayMarks(belongs)...)
		}
	}
	scripts, err := scriptMarks(s.root)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, file := range slices.Sorted(maps.Keys(scripts)) {
		name := strings.TrimSuffix(path.Base(file), path.Ext(file))
		for _, m := range scripts[file] {
			note(file, path.Dir(path.Dir(path.Dir(file))), "TestScripts/"+name, m)
		}
	}
	for _, folders := range tests {
		for _, names := range folders {
			slices.Sort(names)
		}
	}
	return tests, problems
}

// strayMarks are marks on lines that belong to no test.
func (f file) strayMarks(belongs map[int]bool) (problems []string) {
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			line := f.fset.Position(c.Pos()).Line
			if m, ok := markOf(strings.TrimPrefix(c.Text, "//")); ok && !belongs[line] {
				problems = append(problems, fmt.Sprintf("%s:%d: covers %s, but stands above no test", f.name, line, strings.Join(m.ids, ", ")))
			}
		}
	}
	return problems
}

// scriptMarks reads the scripts that the tests named TestScripts play: their comments begin with #.
func scriptMarks(root string) (map[string][]mark, error) {
	found := map[string][]mark{}
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if entry.IsDir() && name != "." && skipped(name) && path.Base(name) != "testdata" {
			return filepath.SkipDir
		}
		if match, err := path.Match("*/testdata/scripts/*.txt", lastParts(name, 4)); err != nil || !match {
			return err
		}
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			if comment, ok := strings.CutPrefix(line, "#"); ok {
				found[name] = append(found[name], marksIn(comment)...)
			}
		}
		return nil
	})
	return found, err
}

// lastParts are the last n parts of a path with slashes.
func lastParts(name string, n int) string {
	parts := strings.Split(name, "/")
	return strings.Join(parts[max(0, len(parts)-n):], "/")
}

// coverPage is a page of docs/generated.
func coverPage(title, about string, sections []section, tests covering) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", title)
	wrap(&b, "", about+" Written by `go test ./internal/law -run Covers -update` from the `covers:` marks above the tests.")
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", section.title)
		for _, s := range section.subjects {
			wrap(&b, "- ", "**"+s.id+"** "+s.text)
			if s.open != "" {
				wrap(&b, "  - ", "Open: "+s.open)
			}
			for _, folder := range slices.Sorted(maps.Keys(tests[s.id])) {
				name := folder
				if name == "." {
					name = "duly"
				}
				wrap(&b, "  - ", "`"+name+"`: "+strings.Join(tests[s.id][folder], ", "))
			}
		}
	}
	return b.String()
}

// wrap writes a text in lines; those after the first are indented as far as its beginning.
func wrap(b *strings.Builder, begin, text string) {
	line := begin
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > pageColumns {
			b.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", len(begin)), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	b.WriteString(line + "\n")
}

// uncovered are subjects that are neither told as open nor have a test.
func uncovered(sections []section, tests covering) (problems []string) {
	for _, section := range sections {
		for _, s := range section.subjects {
			if s.open == "" && len(tests[s.id]) == 0 {
				problems = append(problems, fmt.Sprintf("%s (%s) is not open and has no test", s.id, s.text))
			}
		}
	}
	return problems
}

// TestCovers: what is not told as open has a test, and the pages tell it as it is.
//
// covers: S16, S42, Q6
func TestCovers(t *testing.T) {
	s := sources(t)
	tests, problems := s.covered(s.tree)
	for _, p := range problems {
		t.Error(p)
	}
	for _, page := range coverPages {
		for _, p := range uncovered(page.sections, tests) {
			t.Error(p)
		}
		fresh := coverPage(page.title, page.about, page.sections, tests)
		at := filepath.Join(s.root, filepath.FromSlash(page.file))
		if *update {
			if err := os.WriteFile(at, []byte(fresh), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if text(t, page.file) != fresh {
			t.Errorf("%s is not fresh: go test ./internal/law -run Covers -update", page.file)
		}
	}
}

// TestCoversPlanted shows that the check can fail.
func TestCoversPlanted(t *testing.T) {
	root := filepath.Join("testdata", "covers")
	tree, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	tests, problems := sourceOf(root, tree).covered(tree)
	if got := fmt.Sprint(tests["A1"]["."]); got != "[TestOne TestTwo]" {
		t.Errorf("A1 is covered by %s", got)
	}
	if got := fmt.Sprint(tests["B2"]["."]); got != "[TestTwo TestTwo/there]" {
		t.Errorf("B2 is covered by %s", got)
	}
	for _, want := range []string{"TestTwo covers Z9, which is nothing", "stands above no test", "TestTwo has no subtest gone"} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("problems %q, want one that says %s", problems, want)
		}
	}
	if len(problems) != 3 {
		t.Errorf("%d problems: %q", len(problems), problems)
	}
	planted := []section{{"", []subject{{"A1", "tested", ""}, {"Z1", "open", "not built"}, {"Z2", "forgotten", ""}}}}
	if got := uncovered(planted, tests); len(got) != 1 || !strings.Contains(got[0], "Z2 (forgotten)") {
		t.Errorf("not covered: %q", got)
	}
}

// TestIDsAreSound: ids are a word and a number, and each text is one line.
func TestIDsAreSound(t *testing.T) {
	known, problems := subjects()
	for _, p := range problems {
		t.Error(p)
	}
	for id := range known {
		if !regexp.MustCompile(`^([A-Z]|inv|OP)\d+$`).MatchString(id) {
			t.Errorf("%q is no id", id)
		}
	}
	never := []string{"L10", "L23", "P15"} // numbers that nothing has
	for prefix, n := range map[string]int{"S": 44, "I": 26, "G": 8, "D": 13, "T": 10, "inv": 12, "OP": 25, "L": 24, "W": 15, "P": 23, "O": 12, "U": 9, "K": 9, "Q": 6} {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprint(prefix, i); !known[id] && !slices.Contains(never, id) {
				t.Errorf("%s is missing", id)
			}
		}
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

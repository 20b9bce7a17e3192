package law

import (
	"errors"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The pages that say what is promised and which test proves it.
const (
	requirementsPage = "docs/requirements.md"
	faultsPage       = "docs/faults.md"
	disasterPage     = "docs/operations/disaster.md"
)

// promises are the ids of the requirements page, in order: those of the two
// source pages, the gaps decided, the reference application's defects, and what
// a shallow build skips.
var promises = slices.Concat(ids("S", 44), ids("I", 26), ids("G", 8), ids("D", 13), ids("T", 10))

const invariants = 12

// TestDocs holds the pages to the source: every file, declaration, test and
// subtest they name is there, and no promise and no invariant is left out.
func TestDocs(t *testing.T) {
	s := sources(t)
	for _, page := range []string{requirementsPage, faultsPage, disasterPage} {
		for _, problem := range s.problems(page, text(t, page)) {
			t.Error(problem)
		}
	}
}

// TestUnfitCaseIsNamed: the README says when not to use Duly (S44).
func TestUnfitCaseIsNamed(t *testing.T) {
	_, section, _ := strings.Cut(text(t, "README.md"), "\n## When not to use it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains(section, "remote") {
		t.Error("README.md has no section \"When not to use it\" that names tasks without remote calls")
	}
}

// TestDocsPlanted shows that the checks above can fail: each change spoils the
// real page in one way.
func TestDocsPlanted(t *testing.T) {
	s := sources(t)
	for _, test := range []struct{ page, old, new, want string }{
		{requirementsPage, "TestScripts/", "TestScrips/", "has no TestScrips"},
		{requirementsPage, "TestScripts/01_happy_path", "TestScripts/01_sad_path", "no subtest 01_sad_path"},
		{requirementsPage, "internal/core/cells_test.go", "internal/core/cell_test.go", "no file internal/core/cell_test.go"},
		{requirementsPage, "internal/core/undo.go:decision.backward", "internal/core/undo.go:decision.sideways", "declares no decision.sideways"},
		{requirementsPage, "| S7 |", "| S8 |", "S7 is missing"},
		{requirementsPage, "| S7 |", "| S8 |", "S8 has 2 rows"},
		{requirementsPage, "| I26 |", "| I27 |", "I27 is no promise"},
		{requirementsPage, "**open**: ", "**open** ", "open without a reason"},
		{faultsPage, "## 5. ", "## Five. ", "invariant 5 is missing"},
		{faultsPage, "internal/core/property_test.go: TestStormThenCalm", "TestStormThenCalm", "after no test file"},
		{faultsPage, "scheduler/order_test.go", "scheduler/order.go", "no file scheduler/order.go"},
		{disasterPage, "TestDatabaseWentBack", "TestDatabaseWent", "has no TestDatabaseWent"},
		{disasterPage, "Tried by chaos `wrong-clock`", "By chaos", "\"A clock is wrong\" does not say what tried it"},
		{disasterPage, "**Do**: set it", "Set it", "\"A clock is wrong\" does not say what to do"},
	} {
		whole := text(t, test.page)
		spoilt := strings.Replace(whole, test.old, test.new, 1)
		if spoilt == whole {
			t.Errorf("%s does not hold %q: nothing is planted", test.page, test.old)
			continue
		}
		problems := s.problems(test.page, spoilt)
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, test.want) }) {
			t.Errorf("%s with %q for %q: got %q, want one with %q", test.page, test.new, test.old, problems, test.want)
		}
	}
	row := "| S1 | all or nothing | internal/core/undo.go | somebody will have tested it |"
	if got := rowProblems(strings.Split(strings.Trim(row, "| "), " | ")); len(got) != 1 || !strings.Contains(got[0], "neither a test nor") {
		t.Errorf("a row without a test: got %q", got)
	}
}

// source is what a page may name: declarations by file, with "Type.method" for
// methods, and string literals by folder, which name subtests.
type source struct {
	root  string
	decls map[string]map[string]bool
	texts map[string]map[string]bool
}

func sources(t *testing.T) source {
	t.Helper()
	s := source{root: repository(t), decls: map[string]map[string]bool{}, texts: map[string]map[string]bool{}}
	tree, err := read(s.root)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range tree {
		s.texts[dir.name] = map[string]bool{}
		for _, f := range dir.files {
			s.decls[f.name] = declarations(f.ast)
			ast.Inspect(f.ast, func(node ast.Node) bool {
				if lit, ok := node.(*ast.BasicLit); ok {
					s.texts[dir.name][strings.ReplaceAll(strings.Trim(lit.Value, "`\""), " ", "_")] = true
				}
				return true
			})
		}
	}
	return s
}

func declarations(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			names[receiver(decl)+decl.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// receiver is "Type." of a method, whatever the star and the type parameters.
func receiver(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return ""
	}
	of := decl.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "."
		default:
			return "?."
		}
	}
}

// problems says what is wrong with a page.
func (s source) problems(page, text string) []string {
	var all []string
	for i, line := range strings.Split(text, "\n") {
		for _, problem := range s.lineProblems(line) {
			all = append(all, fmt.Sprintf("%s:%d: %s", page, i+1, problem))
		}
	}
	wholePage := invariantProblems
	switch page {
	case requirementsPage:
		wholePage = promiseProblems
	case disasterPage:
		wholePage = disasterProblems
	}
	for _, problem := range wholePage(text) {
		all = append(all, page+": "+problem)
	}
	return all
}

// reference finds a path with an optional declaration behind it, or a test with
// an optional subtest.
var reference = regexp.MustCompile(`((?:[\w.-]+/)*[\w.-]+\.(?:go|md|txt|sql|yaml|conf))\b(?::([A-Za-z]\w*(?:\.\w+)?))?|\b(Test[A-Z]\w*)(?:/(\w+))?`)

// lineProblems follows every reference of a line; a test belongs to the test
// file named before it.
func (s source) lineProblems(line string) []string {
	var found []string
	bad := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	testFile := ""
	for _, m := range reference.FindAllStringSubmatch(line, -1) {
		file, decl, test, subtest := m[1], m[2], m[3], m[4]
		switch {
		case file != "":
			if _, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(file))); err != nil {
				bad("no file %s", file)
				continue
			}
			if strings.HasSuffix(file, "_test.go") {
				testFile = file
			}
			if decl != "" && !s.decls[file][decl] {
				bad("%s declares no %s", file, decl)
			}
		case testFile == "":
			bad("%s stands after no test file", test)
		case !s.decls[testFile][test]:
			bad("%s has no %s%s", testFile, test, s.elsewhere(testFile, test))
		case subtest != "" && !s.subtest(path.Dir(testFile), subtest):
			bad("%s: %s has no subtest %s", testFile, test, subtest)
		}
	}
	return found
}

// elsewhere helps after a test has moved: it names the file of the same folder
// that holds it now.
func (s source) elsewhere(testFile, test string) string {
	for file, decls := range s.decls {
		if decls[test] && path.Dir(file) == path.Dir(testFile) {
			return "; it is in " + file
		}
	}
	return ""
}

// subtest looks for a subtest's name in the folder and below, and in the suite of the
// stores, which each dialect runs in a folder of its own: as a text of the source, or as a
// file of testdata.
func (s source) subtest(folder, name string) bool {
	const stores, suite = "schema", "schema/storetest"
	for dir, texts := range s.texts {
		if (within(dir, folder) || dir == suite && within(folder, stores)) && texts[name] {
			return true
		}
	}
	found := errors.New("found")
	err := filepath.WalkDir(filepath.Join(s.root, folder, "testdata"), func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.TrimSuffix(entry.Name(), path.Ext(entry.Name())) == name {
			return found
		}
		return err
	})
	return errors.Is(err, found)
}

var promiseRow = regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|.*\|$`)

// promiseProblems wants every promise once, in order, each with a place and a
// test, or open with a reason.
func promiseProblems(text string) []string {
	var found, order []string
	rows := map[string]int{}
	for _, m := range promiseRow.FindAllStringSubmatch(text, -1) {
		found = append(found, rowProblems(strings.Split(strings.Trim(m[0], "| "), " | "))...)
		order = append(order, m[1])
		rows[m[1]]++
	}
	for _, id := range promises {
		switch {
		case rows[id] == 0:
			found = append(found, id+" is missing")
		case rows[id] > 1:
			found = append(found, fmt.Sprintf("%s has %d rows", id, rows[id]))
		}
		delete(rows, id)
	}
	for id := range rows {
		found = append(found, id+" is no promise")
	}
	if len(found) == 0 && !slices.Equal(order, promises) {
		found = append(found, "the promises are out of order")
	}
	return found
}

// rowProblems looks at one row's cells: id, promise, where it is met, proof.
func rowProblems(cells []string) []string {
	if len(cells) != 4 {
		return []string{fmt.Sprintf("%s has %d cells, want 4", cells[0], len(cells))}
	}
	where, proof := cells[2], cells[3]
	_, reason, open := strings.Cut(proof, "**open**")
	tested := regexp.MustCompile(`_test\.go: Test[A-Z]`).MatchString(proof)
	switch {
	case open && !regexp.MustCompile(`^: \w`).MatchString(reason):
		return []string{cells[0] + " is open without a reason"}
	case !open && !tested:
		return []string{cells[0] + " has neither a test nor **open**"}
	case tested && !reference.MatchString(where):
		return []string{cells[0] + " is tested, but met in no file"}
	}
	return nil
}

// disasterProblems wants of each section that it says what to do, and what tried it.
func disasterProblems(text string) []string {
	var found []string
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		if !strings.Contains(rest, "**Do**: ") {
			found = append(found, fmt.Sprintf("%q does not say what to do", title))
		}
		if !regexp.MustCompile("\nTried by (chaos `|[\\w/]+_test\\.go: Test)").MatchString(rest) {
			found = append(found, fmt.Sprintf("%q does not say what tried it", title))
		}
	}
	return found
}

// invariantProblems wants a section for each invariant, in order, with a guard
// and a test.
func invariantProblems(text string) []string {
	var found []string
	for n := 1; n <= invariants; n++ {
		_, rest, ok := strings.Cut(text, fmt.Sprintf("\n## %d. ", n))
		if !ok {
			found = append(found, fmt.Sprintf("invariant %d is missing", n))
			continue
		}
		text = "\n" + rest
		section, _, _ := strings.Cut(rest, "\n## ")
		guard := regexp.MustCompile(`\n\| [^|]*\.go:\w[^|]*\|[^|]*_test\.go: Test`)
		if !guard.MatchString(section) {
			found = append(found, fmt.Sprintf("invariant %d has no guard with a test", n))
		}
	}
	return found
}

func ids(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i+1)
	}
	return all
}

func text(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository(t), filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

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

// What the pages may have.
const (
	wordsMax    = 62_400 // in all pages, without what is generated
	linesMax    = 150    // of a page of longPages
	proseColumn = 125    // of a line that is neither code nor a table
	cellMax     = 120    // of a cell of a table
)

// pages outside docs.
var topPages = []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}

// longPages are those that grow when they are not held.
var longPages = []string{"docs/performance.md", "docs/reliability.md", moneyPage}

// generatedPages are those beside generatedDir that a test or a tool writes whole.
var generatedPages = []string{criteriaPage, "docs/reference/metrics.md", "docs/third-party.md"}

const (
	disasterPage = "docs/operations/disaster.md"
	generatedDir = "docs/generated"
	criteriaPage = "docs/operators-criteria.md"
	guideDir     = "docs/guide"
	moneyPage    = "docs/guide/money.md"
	securityPage = "docs/operations/security.md"
	decisionsDir = "docs/decisions"
)

// TestDocs holds the pages to the source and to their shape: every file, test and section that they name is there, every
// snippet of a guide stands in a file that is compiled, and lines and cells can be read.
func TestDocs(t *testing.T) {
	s := sources(t)
	words := 0
	for _, page := range s.pages(t) {
		text := text(t, page)
		for _, problem := range s.problems(page, text) {
			t.Error(problem)
		}
		if path.Dir(page) != generatedDir && !slices.Contains(generatedPages, page) {
			words += len(strings.Fields(written(text)))
		}
	}
	if words > wordsMax {
		t.Errorf("the pages have %d words, want %d at most", words, wordsMax)
	}
	t.Logf("%d words", words)
}

// TestUnfitCaseIsNamed: the README says when not to use Duly.
//
// covers: S44
func TestUnfitCaseIsNamed(t *testing.T) {
	_, section, _ := strings.Cut(text(t, "README.md"), "\n## When not to use it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains(section, "remote") {
		t.Error("README.md has no section \"When not to use it\" that names tasks without remote calls")
	}
}

// TestDocsPlanted shows that the checks above can fail: each change spoils a real page in one way.
func TestDocsPlanted(t *testing.T) {
	s := sources(t)
	const firstPage, decision, wire = "docs/guide/first-workflow.md", "docs/decisions/008-attempts.md", "docs/decisions/002-wire.md"
	for _, test := range []struct{ page, old, new, want string }{
		{disasterPage, "TestDatabaseWentBack", "TestDatabaseWent", "no test TestDatabaseWent"},
		{disasterPage, "Tried by chaos `wrong-clock`", "By chaos", "\"A clock is wrong\" does not say what tried it"},
		{disasterPage, "**Do**: set it", "Set it", "\"A clock is wrong\" does not say what to do"},
		{disasterPage, "](#a-clock-is-wrong)", "](#a-clock-is-right)", "no section #a-clock-is-right"},
		{disasterPage, "](health.md", "](sickness.md", "no file docs/operations/sickness.md"},
		{disasterPage, "\n## A clock is wrong\n", "\n`internal/law/laws.go`\n\n## A clock is wrong\n", "no file internal/law/laws.go"},
		{"ARCHITECTURE.md", "`internal/core: decision.backward`", "`internal/core: decision.sideways`", "declares no decision.sideways"},
		{"ARCHITECTURE.md", "`scheduler: Place`", "`schedulers: Place`", "no package schedulers"},
		{firstPage, "duly.NewPlan(", "duly.NewPlans(", "is not in example_test.go"},
		{firstPage, "<!-- code: example_test.go -->", "", "does not say which file has it"},
		{decision, "\n## Consequences\n", "\n## Costs\n", "no section Consequences"},
		{wire, "\n## Problem\n", "\n## Problem\n" + strings.Repeat("word ", 30) + "\n", "a line of"},
		{wire, "\n## Problem\n", "\n## Problem\n\n| a | " + strings.Repeat("word ", 30) + "|\n|---|---|\n", "a cell of"},
		{"docs/reliability.md", "\n## ", strings.Repeat("\n", linesMax) + "\n## ", "lines, want"},
		{moneyPage, "\n## Never rounded\n", "\n## Never rounded\n\nNothing is lost.\n", "names no test"},
		{moneyPage, "  <!-- TestAskToken, TestAcceptedAsksAgain, TestEditVoidsAnswers -->\n", "", "names no test"},
		{moneyPage, "<!-- TestScripts/16_resolved_by_hand -->", "", "names no test"},
		{moneyPage, "TestAcceptedAnswerFitsItsSchema", "TestAcceptedAnswerFits", "no test TestAcceptedAnswerFits"},
		{securityPage, "| TestFullDoor |", "| |", "names no test that reaches it"},
		{securityPage, "| TestFullDoor |", "| TestFullDoors |", "no test TestFullDoors"},
		{securityPage, "## What an outsider can make big", "## What can be big", "has no table"},
		{moneyPage, "TestScripts/16_resolved_by_hand", "TestScripts/16_resolved", "no subtest 16_resolved"},
		{"docs/performance.md", "go run . -verify", "go run ./bench -verify", "bench is a module of its own"},
		{"docs/performance.md", "go run . -verify", "go run ./benches -verify", "no folder benches"},
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
}

// source is what a page or a mark may name: tests, declarations by folder, with "Type.method" for methods, and string
// literals by folder, which name subtests.
type source struct {
	root  string
	tree  forest
	tests map[string]bool
	decls map[string]map[string]bool
	texts map[string]map[string]bool
}

func sources(t *testing.T) source {
	t.Helper()
	root := repository(t)
	tree, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	return sourceOf(root, tree)
}

func sourceOf(root string, tree forest) source {
	s := source{root: root, tree: tree, tests: map[string]bool{}, decls: map[string]map[string]bool{}, texts: map[string]map[string]bool{}}
	for _, dir := range tree {
		s.texts[dir.name], s.decls[dir.name] = map[string]bool{}, map[string]bool{}
		for _, f := range dir.files {
			for _, name := range declarations(f.ast) {
				s.decls[dir.name][name] = true
				s.tests[name] = s.tests[name] || f.test
			}
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

// declarations are the names that a file declares.
func declarations(f *ast.File) (names []string) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			names = append(names, receiver(decl)+decl.Name.Name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
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

// subtest looks for a subtest's name beside the folder and below: as a text of the source, or as a file of testdata.
func (s source) subtest(folder, name string) bool {
	near := path.Dir(folder)
	for dir, texts := range s.texts {
		if (near == "." || within(dir, near)) && texts[name] {
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

// pages are those of docs and the first ones.
func (s source) pages(t *testing.T) []string {
	t.Helper()
	all := slices.Clone(topPages)
	err := filepath.WalkDir(filepath.Join(s.root, "docs"), func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(entry.Name()) != ".md" {
			return err
		}
		rel, err := filepath.Rel(s.root, at)
		all = append(all, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// generated is a part of a page that a test writes.
var generated = regexp.MustCompile(`(?s)<!-- generated.*?<!-- /generated -->`)

// written is a page without what a test writes.
func written(text string) string { return generated.ReplaceAllString(text, "") }

// goCommand is one that names packages of the module that it is run in, which is the root's.
var goCommand = regexp.MustCompile(`go (?:run|build|test|vet) (?:-\S+ )*\./([a-z0-9/_-]+)`)

// commandProblems says which folders of a line's commands are not there, or are of another module, where go does not find them.
func (s source) commandProblems(line string) (all []string) {
	for _, m := range goCommand.FindAllStringSubmatch(line, -1) {
		dir := strings.TrimSuffix(m[1], "/")
		if _, err := os.Stat(filepath.Join(s.root, dir)); err != nil {
			all = append(all, "no folder "+dir)
		}
		for at := dir; at != "."; at = path.Dir(at) {
			if _, err := os.Stat(filepath.Join(s.root, at, "go.mod")); err == nil {
				all = append(all, m[0]+" cannot run here: "+at+" is a module of its own")
			}
		}
	}
	return all
}

// problems says what is wrong with a page.
func (s source) problems(page, text string) []string {
	var all []string
	bad := func(format string, args ...any) { all = append(all, page+": "+fmt.Sprintf(format, args...)) }
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		for _, problem := range s.commandProblems(line) {
			bad("%d: %s", i+1, problem)
		}
		if code {
			continue
		}
		for _, problem := range append(s.lineProblems(page, text, line), shapeProblems(line)...) {
			all = append(all, fmt.Sprintf("%s:%d: %s", page, i+1, problem))
		}
	}
	if n := strings.Count(text, "\n"); slices.Contains(longPages, page) && n > linesMax {
		bad("%d lines, want %d at most", n, linesMax)
	}
	switch {
	case page == disasterPage:
		disasterProblems(text, bad)
	case path.Dir(page) == decisionsDir:
		for _, want := range []string{"Problem", "Options", "Decision", "Consequences"} {
			if !strings.Contains(text, "\n## "+want+"\n") {
				bad("no section %s", want)
			}
		}
	case path.Dir(page) == guideDir:
		s.snippetProblems(text, bad)
	}
	if page == securityPage {
		boundProblems(text, bad)
	}
	if page == moneyPage {
		s.promiseProblems(text, bad)
	}
	return all
}

var (
	codeSpan  = regexp.MustCompile("`[^`]*`")
	link      = regexp.MustCompile(`\]\(([^)]*)\)`)
	filePath  = regexp.MustCompile(`(?:[\w.-]+/)+[\w.-]+\.(?:go|md|conf|sql|yaml|txt)\b`)
	testName  = regexp.MustCompile(`\bTest[A-Z]\w*`)
	declared  = regexp.MustCompile("`((?:[a-z][a-z0-9]*/)*[a-z][a-z0-9]*): ([A-Za-z]\\w*(?:\\.\\w+)?)`")
	noHeading = regexp.MustCompile("[^a-z0-9 _-]")
)

// lineProblems follows every link, path and test of a line. Pages that are generated are checked by their own tests.
func (s source) lineProblems(page, text, line string) []string {
	var found []string
	bad := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if path.Dir(page) == generatedDir || page == criteriaPage {
		return nil
	}
	for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
		target, section, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, "://") {
			continue
		}
		there := text
		if target != "" {
			target = path.Join(path.Dir(page), target)
			data, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(target)))
			if err != nil && !s.exists(target) {
				bad("no file %s", target)
				continue
			}
			there = string(data)
		}
		if section != "" && !hasSection(there, section) {
			bad("no section #%s", section)
		}
	}
	rest := link.ReplaceAllString(line, "]")
	for _, file := range filePath.FindAllString(rest, -1) {
		host, _, _ := strings.Cut(file, "/")
		if !strings.Contains(host, ".") && !s.exists(file) { // github.com/… is a module
			bad("no file %s", file)
		}
	}
	for _, m := range declared.FindAllStringSubmatch(line, -1) {
		if decls, ok := s.decls[m[1]]; ok && !decls[m[2]] {
			bad("package %s declares no %s", m[1], m[2])
		} else if !ok {
			bad("no package %s", m[1])
		}
	}
	for _, test := range testName.FindAllString(rest, -1) {
		if !s.tests[test] {
			bad("no test %s", test)
		}
	}
	return found
}

func (s source) exists(file string) bool {
	_, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(file)))
	return err == nil
}

// hasSection reports whether a page has a heading with that anchor.
func hasSection(text, anchor string) bool {
	for line := range strings.Lines(text) {
		heading := strings.TrimLeft(line, "#")
		if heading == line {
			continue
		}
		name := noHeading.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
		if strings.ReplaceAll(name, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// shapeProblems looks at the width of a line that is no code.
func shapeProblems(line string) []string {
	if strings.HasPrefix(line, "|") {
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), " | ") {
			if n := len([]rune(strings.TrimSpace(cell))); n > cellMax {
				return []string{fmt.Sprintf("a cell of %d characters, want %d at most", n, cellMax)}
			}
		}
		return nil
	}
	if n := len([]rune(line)); n > proseColumn && strings.Contains(strings.TrimSpace(line), " ") {
		return []string{fmt.Sprintf("a line of %d characters, want %d at most", n, proseColumn)}
	}
	return nil
}

// disasterProblems wants of each section that it says what to do, and what tried it.
func disasterProblems(text string, bad func(string, ...any)) {
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		if !strings.Contains(rest, "**Do**: ") {
			bad("%q does not say what to do", title)
		}
		if !regexp.MustCompile("\nTried by (chaos `|Test)").MatchString(rest) {
			bad("%q does not say what tried it", title)
		}
	}
}

// boundProblems wants each row of the table of what can be made big to name the tests that reach its bounds. That they are
// there is for lineProblems to say.
func boundProblems(text string, bad func(string, ...any)) {
	_, table, _ := strings.Cut(text, "\n## What an outsider can make big\n")
	_, rows, found := strings.Cut(table, "|---|---|---|---|\n")
	if !found {
		bad("%q has no table", "What an outsider can make big")
	}
	for row := range strings.Lines(rows) {
		if strings.HasPrefix(row, "|") && !regexp.MustCompile(`\| Test\w+(, Test\w+)* \|\n$`).MatchString(row) {
			bad("%.40q names no test that reaches it", row)
		}
	}
}

var (
	noPromise = regexp.MustCompile("(?s:```.*?```)|<!-- code: \\S+ -->|(?m:^#.*$|^\\|.*\\|\\n\\|---.*$)")
	promise   = regexp.MustCompile(`(?m)^(?:- |\|)`)
	heldBy    = regexp.MustCompile(`<!-- (Test\w+(?:/\w+)?(?:, Test\w+(?:/\w+)?)*) -->[ |]*$`)
)

// promiseProblems wants each paragraph, item and row of a page to name at its end, in a comment, the tests that hold what it
// promises. That the tests are there is for lineProblems to say, but for subtests.
func (s source) promiseProblems(text string, bad func(string, ...any)) {
	text = noPromise.ReplaceAllString(text, "\n\n")
	for paragraph := range strings.SplitSeq(promise.ReplaceAllString(text, "\n\n$0"), "\n\n") {
		paragraph = strings.TrimSpace(paragraph)
		if strings.HasSuffix(paragraph, ":") || paragraph == "" { // what follows it says
			continue
		}
		m := heldBy.FindStringSubmatch(paragraph)
		if m == nil {
			bad("%q names no test that holds it", paragraph)
			continue
		}
		for name := range strings.SplitSeq(m[1], ", ") {
			if test, subtest, is := strings.Cut(name, "/"); is && !s.hasSubtest(test, subtest) {
				bad("%s has no subtest %s", test, subtest)
			}
		}
	}
}

// hasSubtest reports whether a test of some folder has a subtest.
func (s source) hasSubtest(test, name string) bool {
	for folder, decls := range s.decls {
		if decls[test] && s.subtest(folder, name) {
			return true
		}
	}
	return false
}

// snippetBegin begins a block of code that is held to a file.
var snippetBegin = regexp.MustCompile("```(?:go|js)\n")

// snippetOf names the file that holds the code which follows.
var snippetOf = regexp.MustCompile(`<!-- code: (\S+) -->\s*$`)

// snippetProblems wants every block of Go or JavaScript to stand in the file named before it, line after line, however indented.
func (s source) snippetProblems(text string, bad func(string, ...any)) {
	blocks := snippetBegin.Split(text, -1)
	for i, block := range blocks[1:] {
		m := snippetOf.FindStringSubmatch(blocks[i])
		if m == nil {
			bad("block %d of code does not say which file has it: <!-- code: FILE -->", i+1)
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(m[1])))
		if err != nil {
			bad("block %d of code: %v", i+1, err)
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(squeezed(string(data)), squeezed(block)) {
			bad("block %d of code is not in %s", i+1, m[1])
		}
	}
}

// squeezed is code without its indentation, alignment and empty lines.
func squeezed(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if words := strings.Fields(line); len(words) > 0 {
			b.WriteString(strings.Join(words, " ") + "\n")
		}
	}
	return b.String()
}

func text(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository(t), filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

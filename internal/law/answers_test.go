package law

import (
	"go/ast"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// answer is what a door answers: a code, and the number of the cause.
type answer struct{ code, cause int }

// TestDoorsOnThePage holds the table of docs/reference/protocol.md to the source: what a door refuses stands there with its
// code, every cause has a row, and "again" is said where, and only where, the same request may succeed.
func TestDoorsOnThePage(t *testing.T) {
	s := sources(t)
	numbers := s.causes()
	said := map[answer]bool{}
	for _, row := range doorRows(t) {
		again := strings.Contains(row.todo, "again")
		for _, code := range row.codes {
			if again == core.FinalCode(code) {
				t.Errorf("code %d: %q", code, row.todo)
			}
			for _, cause := range row.causes {
				said[answer{code, cause}] = true
			}
		}
	}
	used, found := map[int]bool{0: true}, 0 // 0: a message that NATS has brought and no door could read
	for one := range s.refusals(numbers) {
		found++
		if used[one.cause] = true; !said[one] {
			t.Errorf("%d %d is not on the page", one.code, one.cause)
		}
	}
	if found < 30 || len(numbers) < 35 {
		t.Fatalf("found %d refusals and %d causes", found, len(numbers))
	}
	for name, number := range numbers {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(said)), func(a answer) bool { return a.cause == number }) {
			t.Errorf("%s, %d, is not on the page", name, number)
		}
		used[number] = true
	}
	for one := range said {
		if !used[one.cause] {
			t.Errorf("%d is on the page, and is no cause", one.cause)
		}
	}
}

// causes are the numbers of the causes by their names.
func (s source) causes() map[string]int {
	numbers := map[string]int{}
	for _, node := range s.nodes("ingest") {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "cause") {
			continue
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			numbers[spec.Names[0].Name], _ = strconv.Atoi(lit.Value)
		}
	}
	return numbers
}

// refusals are the codes and causes that stand side by side in the doors: as arguments, or as an element of a map.
func (s source) refusals(numbers map[string]int) map[answer]bool {
	all := map[answer]bool{}
	note := func(code, cause ast.Expr) {
		lit, ok := code.(*ast.BasicLit)
		name := ""
		switch cause := cause.(type) {
		case *ast.Ident:
			name = cause.Name
		case *ast.SelectorExpr:
			name = cause.Sel.Name
		}
		if ok && numbers[name] != 0 {
			n, _ := strconv.Atoi(lit.Value)
			all[answer{n, numbers[name]}] = true
		}
	}
	for _, dir := range []string{"ingest", "internal/api", "internal/node"} {
		for _, node := range s.nodes(dir) {
			switch node := node.(type) {
			case *ast.CallExpr:
				if len(node.Args) > 1 {
					note(node.Args[0], node.Args[1])
				}
			case *ast.KeyValueExpr:
				note(node.Key, node.Value)
			}
		}
	}
	return all
}

// nodes are those of a folder's source, without its tests.
func (s source) nodes(dir string) (all []ast.Node) {
	for _, folder := range s.tree {
		for _, f := range folder.files {
			if folder.name == dir && !f.test {
				ast.Inspect(f.ast, func(node ast.Node) bool {
					all = append(all, node)
					return true
				})
			}
		}
	}
	return all
}

// doorRow is a row of the page of which the code is an error's.
type doorRow struct {
	codes, causes []int
	todo          string
}

func doorRows(t *testing.T) (rows []doorRow) {
	t.Helper()
	_, rest, _ := strings.Cut(text(t, "docs/reference/protocol.md"), "\n### What a door answers\n")
	_, rest, _ = strings.Cut(rest, "|---|---|---|---|\n")
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			return rows
		case len(cells) != 4:
			t.Fatalf("%d cells: %s", len(cells), line)
		case cells[1] != "–":
			rows = append(rows, doorRow{numbersOf(t, cells[0]), numbersOf(t, cells[1]), cells[3]})
		}
	}
	return rows
}

// numbersOf are the numbers of a cell: "0, 7001, 7003–7011".
func numbersOf(t *testing.T, cell string) (numbers []int) {
	t.Helper()
	for part := range strings.SplitSeq(cell, ", ") {
		first, last, span := strings.Cut(part, "–")
		if !span {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from > to || to > from+20 || from != 0 && from < http.StatusBadRequest {
			t.Fatalf("%q is neither a number nor a span of some", part)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// streamsOwn is the file whose answers tell what the task stream says of itself: that it is full, for instance.
const streamsOwn = "ingest/pack.go"

// TestAnswersHaveNoWordOfAStore: what the state store says when it fails, with its address and its account, is in no answer:
// a refusal of a server's trouble holds no error.
func TestAnswersHaveNoWordOfAStore(t *testing.T) {
	found := 0
	for _, folder := range sources(t).tree {
		for _, f := range folder.files {
			if folder.foreign || f.test || f.name == streamsOwn {
				continue
			}
			ast.Inspect(f.ast, func(node ast.Node) bool {
				parts := troubleOf(node)
				found += min(1, len(parts))
				if slices.ContainsFunc(parts, holdsError) {
					t.Error(f.breach(node.Pos(), "an answer of a server's trouble has the words of an error"))
				}
				return true
			})
		}
	}
	if found < 15 {
		t.Errorf("%d answers were looked at", found)
	}
}

// troubleOf are the parts of a refusal, or of an error on the wire, with a code from 500 on; none: the node is no such thing.
func troubleOf(node ast.Node) []ast.Expr {
	is5xx := func(e ast.Expr) bool {
		lit, ok := e.(*ast.BasicLit)
		return ok && len(lit.Value) == 3 && lit.Value[0] == '5'
	}
	switch node := node.(type) {
	case *ast.CallExpr:
		name := node.Fun
		if of, ok := name.(*ast.SelectorExpr); ok {
			name = of.Sel
		}
		if id, ok := name.(*ast.Ident); ok && id.Name == "Refuse" && len(node.Args) > 2 && is5xx(node.Args[0]) {
			return node.Args[2:]
		}
	case *ast.CompositeLit:
		if slices.ContainsFunc(node.Elts, func(e ast.Expr) bool {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok || !is5xx(kv.Value) {
				return false
			}
			key, ok := kv.Key.(*ast.Ident)
			return ok && key.Name == "Code"
		}) {
			return node.Elts
		}
	}
	return nil
}

// holdsError reports whether an expression uses an error by its usual names.
func holdsError(e ast.Expr) (holds bool) {
	ast.Inspect(e, func(node ast.Node) bool {
		id, ok := node.(*ast.Ident)
		holds = holds || ok && (id.Name == "err" || id.Name == "failed")
		return !holds
	})
	return holds
}

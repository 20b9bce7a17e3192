package sqlparse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// groupSQL is what package group says, as its source has it: consts are put in where statements are put together.
func groupSQL(t *testing.T) (texts []string) {
	t.Helper()
	consts := map[string]string{}
	var value func(e ast.Expr) (string, bool)
	value = func(e ast.Expr) (string, bool) {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(e.Value)
			return text, err == nil && e.Kind == token.STRING
		case *ast.Ident:
			text, ok := consts[e.Name]
			return text, ok
		case *ast.BinaryExpr:
			left, ok := value(e.X)
			right, also := value(e.Y)
			return left + right, ok && also
		}
		return "", false
	}
	for _, name := range []string{"sql.go", "operate.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), "../../group/"+name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.ValueSpec); ok && len(s.Values) == 1 {
				if text, ok := value(s.Values[0]); ok {
					consts[s.Names[0].Name] = text
				}
			}
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := value(e)
			if first, _, _ := strings.Cut(text, " "); ok && strings.Contains(" SELECT INSERT UPDATE DELETE WITH BEGIN; ", " "+first+" ") {
				texts = append(texts, strings.ReplaceAll(text, "%d", "1000"))
			}
			return !ok
		})
	}
	tables, err := os.ReadFile("../../group/group.sql")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(tables), ";\n") {
		if strings.TrimSpace(text) != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// TestGroupSQL: both databases read what package group says, and mean the same by it.
//
// covers: E19
func TestGroupSQL(t *testing.T) {
	texts := groupSQL(t)
	const least = 15 // statements of package group
	if len(texts) < least {
		t.Fatalf("%d statements, want %d or more: the source was not read", len(texts), least)
	}
	known := tables{unique: map[string][]string{}, nullable: map[string]bool{}}
	for _, text := range texts {
		tree, err := pg.Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, s := range tree.Stmts {
			if c := s.Stmt.GetCreateStmt(); c != nil {
				known.create(c)
			}
		}
	}
	for _, text := range texts {
		for _, problem := range problems(text, known) {
			t.Errorf("%s\n%s", problem, text)
		}
	}
}

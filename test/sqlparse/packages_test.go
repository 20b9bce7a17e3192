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

// packageSQL is what a package says on users' databases, as its source has it: consts are put in where statements are put
// together, and for calls of functions what they are known to return.
type packageSQL struct {
	dir           string
	files         []string
	tables        string // a file of SQL
	consts, calls map[string]string
	least         int // statements
}

var packages = map[string]packageSQL{
	"group": {dir: "../../group/", files: []string{"sql.go", "operate.go"}, tables: "group.sql", least: 15},
	"pgledger": {
		dir: "../../agents/pgledger/", files: []string{"sql.go"}, tables: "ledger.sql", least: 10,
		consts: map[string]string{"table": "duly_ledger"}, calls: map[string]string{"takesIn": "true"}, // as on CockroachDB
	},
}

// value is the text of an expression, as far as it has one.
func (p *packageSQL) value(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		text, ok := p.consts[e.Name]
		return text, ok
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.Ident); ok {
			text, ok := p.calls[f.Name]
			return text, ok
		}
	case *ast.BinaryExpr:
		left, ok := p.value(e.X)
		right, also := p.value(e.Y)
		return left + right, ok && also
	}
	return "", false
}

// texts are the statements.
func (p *packageSQL) texts(t *testing.T) (texts []string) {
	t.Helper()
	if p.consts == nil {
		p.consts = map[string]string{}
	}
	for _, name := range p.files {
		file, err := parser.ParseFile(token.NewFileSet(), p.dir+name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.ValueSpec); ok {
				for i := range s.Values {
					if text, ok := p.value(s.Values[i]); ok {
						p.consts[s.Names[i].Name] = text
					}
				}
			}
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := p.value(e)
			if first, _, _ := strings.Cut(text, " "); ok && strings.Contains(" SELECT INSERT UPDATE DELETE WITH BEGIN; ", " "+first+" ") {
				texts = append(texts, strings.ReplaceAll(text, "%d", "1000"))
			}
			return !ok
		})
	}
	tables, err := os.ReadFile(p.dir + p.tables)
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

// TestPackagesSQL: both databases read what packages group and pgledger say, and mean the same by it.
//
// covers: E19, K9
func TestPackagesSQL(t *testing.T) {
	for name, p := range packages {
		t.Run(name, func(t *testing.T) {
			texts := p.texts(t)
			if len(texts) < p.least {
				t.Fatalf("%d statements, want %d or more: the source was not read", len(texts), p.least)
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
		})
	}
}

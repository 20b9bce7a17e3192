package sqlparse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	source     = "../../schema"
	migrations = source + "/migrations/postgres"
)

var (
	// looksLikeSQL: the words of SQL as the source writes them, and statements in
	// lower case.
	looksLikeSQL = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|SET|FROM|WHERE|JOIN|RETURNING|ORDER BY|GROUP BY|ON CONFLICT|UNION|LIMIT|COALESCE|ANY\(|COPY|CREATE|DROP|ALTER|TRUNCATE|WITH|LOCK|MERGE|UPSERT|VALUES|AS|AND)\b|unnest\(` +
		`|(?i)^\s*(select\s|insert\s+into\s|update\s+\w+(\s+as\s+\w+)?\s+set\s|delete\s+from\s|create\s|drop\s|alter\s|truncate\s|merge\s+into\s|upsert\s+into\s|lock\s+table\s|vacuum|with\s+\w+\s+as\s*\(|copy\s+\w+\s*\()`)
	verbs  = regexp.MustCompile(`%(\[\d+\])?[a-z]`)
	spaces = regexp.MustCompile(`\s+`)
)

// flat is a text without what the dialects and the source spell in another way.
func flat(text string) string {
	return strings.TrimSpace(spaces.ReplaceAllString(strings.ReplaceAll(text, "?", "$"), " "))
}

// unheard are the pieces of SQL in Go source that no text holds.
func unheard(name, src string, texts []string) (pieces int, missing []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return 0, nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil || !looksLikeSQL.MatchString(text) {
			return true
		}
		for _, piece := range verbs.Split(text, -1) {
			if piece = flat(piece); piece == "" {
				continue
			}
			pieces++
			if !holds(texts, piece) {
				missing = append(missing, fset.Position(lit.Pos()).String()+": "+piece)
			}
		}
		return true
	})
	return pieces, missing, nil
}

func holds(texts []string, piece string) bool {
	for _, t := range texts {
		if strings.Contains(flat(t), piece) {
			return true
		}
	}
	return false
}

// Every piece of SQL in the source was heard.
//
// covers: E19
func TestSourceIsHeard(t *testing.T) {
	postgres, cockroach := texts(t)
	all := append(append([]string{}, postgres...), cockroach...)
	files, err := filepath.Glob(source + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Glob(source + "/postgres/*.go")
	if err != nil || len(own) == 0 {
		t.Fatalf("%d files of PostgreSQL's package, %v", len(own), err)
	}
	files = append(files, own...)
	total := 0
	for _, name := range files {
		base := filepath.Base(name)
		if strings.HasSuffix(base, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n, missing, err := unheard(base, string(src), all)
		if err != nil {
			t.Fatal(err)
		}
		total += n
		for _, m := range missing {
			t.Errorf("no run of the suite says %s", m)
		}
	}
	if total < 50 {
		t.Errorf("%d pieces of SQL in the source: the search is blind", total)
	}
	t.Logf("%d pieces of SQL, %d texts", total, len(all))
}

// A statement that nothing runs is found, in whatever way it is written.
func TestUnheardIsFound(t *testing.T) {
	for _, src := range []string{
		"const q = `SELECT nothing FROM nowhere`",
		"const q = `select nothing from nowhere`",
		"var q = `UPDATE tasks SET ` + x()",
		`func f() { run("delete from tasks") }`,
		`func f() { run(fmt.Sprintf("LOCK TABLE %s IN SHARE MODE", "tasks")) }`,
		`const q = "  upsert into tasks values (1)"`,
	} {
		_, missing, err := unheard("planted.go", "package p\n"+src, []string{"SELECT something FROM somewhere"})
		if err != nil {
			t.Fatal(err)
		}
		if len(missing) == 0 {
			t.Errorf("not found: %s", src)
		}
	}
	n, missing, err := unheard("planted.go", "package p\nconst q = `SELECT ` + cols + ` FROM t WHERE a = ?1`", []string{"SELECT a, b\n\tFROM t WHERE a = $1"})
	if err != nil || n != 2 || len(missing) > 0 {
		t.Errorf("%d pieces, missing %v, %v: what was heard counts as missing", n, missing, err)
	}
}

// Every statement of the migrations was heard, as both dialects.
//
// covers: E19
func TestMigrationsAreHeard(t *testing.T) {
	postgres, cockroach := texts(t)
	files, err := filepath.Glob(migrations + "/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	comment := regexp.MustCompile(`(?m)^\s*--.*$`)
	bare := func(texts []string) (all []string) {
		for _, t := range texts {
			all = append(all, comment.ReplaceAllString(t, ""))
		}
		return all
	}
	heard := map[string][]string{"postgres": bare(postgres), "cockroach": bare(cockroach)}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range strings.Split(comment.ReplaceAllString(string(text), ""), ";") {
			if statement = flat(statement); statement == "" {
				continue
			}
			own, marked := strings.CutPrefix(statement, "/* ")
			only, of, _ := strings.Cut(own, " */ ")
			for dialect, texts := range heard {
				if marked && !strings.HasPrefix(strings.ToLower(only), dialect) {
					continue
				}
				if marked {
					statement = of
				}
				if !holds(texts, statement) {
					t.Errorf("%s: %s was not heard as %s", name, statement, dialect)
				}
			}
		}
	}
}

package law

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	sentencesFile = "internal/say/sentences.txt"
	sentencesPage = "docs/generated/sentences.md"
	templatesDir  = "internal/console/templates"
	// sentenceWords is from how many words on a text is taken for a sentence; what is shorter is a label.
	sentenceWords = 4
)

// tellers are the files, by the beginning of their names, that write no sentence of their own: what operators read there is
// in the table.
var tellers = []string{"internal/core/sentence.go", "internal/replay/frame.go", "internal/books/", "internal/operate/", "internal/node/", "internal/repair/", "internal/console/", "internal/alerts/", "internal/api/requests.go", "internal/api/actions.go", "cmd/duly/internal/", "cmd/duly/failures.go", "cmd/duly/books.go", "cmd/duly/topcmd.go", "cmd/duly/ask.go", "cmd/duly/forecast.go", "cmd/duly/taskshow.go", "cmd/duly/manage.go", "cmd/duly/limits.go"}

// notTold are calls whose texts are not in the table: errors, which name a value and what is wanted where it is checked, lines
// of the log, and what programs read.
var notTold = map[string]bool{
	"Errorf": true, "New": true, "panic": true, "MustCompile": true, "Debug": true, "Info": true, "Warn": true, "Error": true,
	"misuse": true, "keyTaken": true, "overwrite": true, "change": true, "Set": true,
}

// refusing are calls and fields whose texts refuse a request.
var refusing = map[string]bool{"bad": true, "wrong": true, "refuse": true, "Refuse": true, "Detail": true, "Description": true}

// refusalsOwn is how many sentences of their own the refusals of a directory have still. A new one is in the table, and one that
// moves there lowers the number.
var refusalsOwn = map[string]int{"ingest": 0, "internal/natsbus": 0, "internal/node": 0, "internal/repair": 0, "internal/operate": 0, "internal/alerts": 3, "internal/api": 14, "internal/console": 8}

var (
	sayWord   = regexp.MustCompile(`[A-Za-z][a-z'’]+`)
	sayField  = regexp.MustCompile(`\{(\w+)[^}]*\}`)
	sayID     = regexp.MustCompile(`^[a-z]+\.[a-z_.-]*$`)
	tmplSay   = regexp.MustCompile(`\bsay "([^"]+)"([^}]*)`)
	tmplName  = regexp.MustCompile(`"(\w+)"`)
	tmplBlock = regexp.MustCompile(`\{\{-? ?(define|template|if|else|end|range|with)\b[^}]*\}\}|<[^>]*>`)
	tmplShown = regexp.MustCompile(`\b(aria-label|placeholder|title)="([^"]*)"`)
	tmplWhole = regexp.MustCompile(`[.:;](\s|$)`) // headings, labels and buttons stay in their page
	tmplValue = regexp.MustCompile(`\{\{[^}]*\}\}`)
)

// sayTable is the table by id, with its headings and ids in order.
func sayTable(text string) (all map[string]string, order []string, problems []string) {
	all = map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		id, template, ok := strings.Cut(line, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			if strings.HasPrefix(line, "## ") {
				order = append(order, line)
			}
		case !ok || !sayID.MatchString(id):
			problems = append(problems, fmt.Sprintf("%s: no id and template: %q", sentencesFile, line))
		case all[id] != "":
			problems = append(problems, fmt.Sprintf("%s: %s is there twice", sentencesFile, id))
		default:
			all[id] = template
			order = append(order, id)
		}
	}
	return all, order, problems
}

// fields are the names of a template's values.
func fields(template string) map[string]bool {
	names := map[string]bool{}
	for _, m := range sayField.FindAllStringSubmatch(template, -1) {
		names[m[1]] = true
	}
	return names
}

// isSentence reports whether a text is one for people: no markup, no layout of several lines, no command.
func isSentence(text string) bool {
	for _, other := range []string{"<", "=\"", "{{", "\": ", "-src "} {
		if strings.Contains(text, other) {
			return false
		}
	}
	if strings.HasPrefix(text, "  ") || strings.HasPrefix(text, "duly ") || strings.Count(text, "\n") > 1 {
		return false
	}
	return len(sayWord.FindAllString(text, -1)) >= sentenceWords && strings.Count(text, " ") >= sentenceWords-2 && !strings.Contains(text, ", want ")
}

// said finds what a file says: ids of the table, and sentences of its own, which are breaches.
// refusals counts those that refuse, by directory.
func (f file) said(table map[string]string, used map[string]bool, tells bool, refusals map[string]int) (found []breach) {
	texts := map[string]bool{}
	ids := map[*ast.BasicLit]string{}
	var own []*ast.BasicLit
	var stack []ast.Node
	ast.Inspect(f.ast, func(node ast.Node) bool {
		if node == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, node)
		lit, ok := node.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, _ := strconv.Unquote(lit.Value)
		texts[text] = true
		if sayID.MatchString(text) {
			ids[lit] = text
		}
		if isSentence(text) {
			switch excuse := excused(stack); {
			case excuse == "" && tells:
				own = append(own, lit)
			case refusing[excuse]:
				refusals[path.Dir(f.name)]++
			}
		}
		return true
	})
	for lit, id := range ids {
		if strings.HasSuffix(id, ".") || strings.HasSuffix(id, "-") { // the beginning of ids
			for full := range table {
				used[full] = used[full] || strings.HasPrefix(full, id)
			}
			continue
		}
		if table[id] == "" {
			continue
		}
		used[id] = true
		for name := range fields(table[id]) {
			if !texts[name] {
				found = append(found, f.breach(lit.Pos(), "%s wants a value %q, which nothing here gives", id, name))
			}
		}
	}
	ast.Inspect(f.ast, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok && isOf(call.Fun, "say", "Of") {
			found = append(found, f.asked(call, table)...)
		}
		return true
	})
	for _, lit := range own {
		found = append(found, f.breach(lit.Pos(), "%s is a sentence of its own, want one of %s", lit.Value, sentencesFile))
	}
	return found
}

// asked compares a call whose id is written out with its template.
func (f file) asked(call *ast.CallExpr, table map[string]string) (found []breach) {
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return nil
	}
	id, _ := strconv.Unquote(lit.Value)
	if table[id] == "" {
		return []breach{f.breach(lit.Pos(), "%s has no %q", sentencesFile, id)}
	}
	given := map[string]bool{}
	for i := 1; i < len(call.Args); i += 2 {
		if name, ok := call.Args[i].(*ast.BasicLit); ok {
			text, _ := strconv.Unquote(name.Value)
			given[text] = true
		}
	}
	if call.Ellipsis == token.NoPos && !maps.Equal(given, fields(table[id])) {
		found = append(found, f.breach(lit.Pos(), "%s has the values %v, and gets %v", id, slices.Sorted(maps.Keys(fields(table[id]))), slices.Sorted(maps.Keys(given))))
	}
	return found
}

// excused is why a literal is no sentence by where it stands: a tag of a field, or the name of the call or the field that
// no person reads, or that refuses. Empty: it is one.
func excused(stack []ast.Node) string {
	for i := len(stack) - 2; i >= 0; i-- {
		switch node := stack[i].(type) {
		case *ast.Field, *ast.ImportSpec:
			return "tag"
		case *ast.KeyValueExpr:
			if key, ok := node.Key.(*ast.Ident); ok && refusing[key.Name] {
				return key.Name
			}
		case *ast.CallExpr:
			name := ""
			switch fun := node.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				name = fun.Sel.Name
			}
			if notTold[name] || refusing[name] {
				return name
			}
		case *ast.FuncLit, *ast.BlockStmt:
			return ""
		}
	}
	return ""
}

// saidInTemplate is the same of a page of the console.
func saidInTemplate(name, page string, table map[string]string, used map[string]bool) (problems []string) {
	for _, m := range tmplSay.FindAllStringSubmatch(page, -1) {
		given := map[string]bool{}
		for _, value := range tmplName.FindAllStringSubmatch(m[2], -1) {
			given[value[1]] = true
		}
		used[m[1]] = true
		if table[m[1]] == "" {
			problems = append(problems, fmt.Sprintf("%s: %s has no %q", name, sentencesFile, m[1]))
		}
		for want := range fields(table[m[1]]) {
			if !given[want] {
				problems = append(problems, fmt.Sprintf("%s: %s wants a value %q", name, m[1], want))
			}
		}
	}
	shown := strings.Split(tmplValue.ReplaceAllString(tmplBlock.ReplaceAllString(page, "\x00"), ""), "\x00")
	for _, m := range tmplShown.FindAllStringSubmatch(page, -1) {
		shown = append(shown, tmplValue.ReplaceAllString(m[2], ""))
	}
	for _, text := range shown {
		if isSentence(text) && tmplWhole.MatchString(text) {
			problems = append(problems, fmt.Sprintf("%s: %q is a sentence of its own, want one of %s", name, strings.TrimSpace(text), sentencesFile))
		}
	}
	return problems
}

// TestSentencesInOneTable: what operators read stands in one table. Every id that the product names is in it with the values
// that it wants, and nothing there is unused.
//
// covers: O10
func TestSentencesInOneTable(t *testing.T) {
	s := sources(t)
	table, order, problems := sayTable(text(t, sentencesFile))
	used, refusals := map[string]bool{}, map[string]int{}
	for _, dir := range s.tree {
		for _, f := range dir.files {
			if f.test || dir.foreign {
				continue
			}
			tells := slices.ContainsFunc(tellers, func(begin string) bool { return strings.HasPrefix(f.name, begin) })
			for _, b := range f.said(table, used, tells, refusals) {
				problems = append(problems, b.String())
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(s.root, filepath.FromSlash(templatesDir), "*.html"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d templates: %v", len(pages), err)
	}
	for _, at := range pages {
		data, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		problems = append(problems, saidInTemplate(filepath.Base(at), string(data), table, used)...)
	}
	for id := range table {
		if !used[id] {
			problems = append(problems, fmt.Sprintf("%s: nothing says %s", sentencesFile, id))
		}
	}
	for dir, had := range refusalsOwn {
		if n := refusals[dir]; n != had {
			problems = append(problems, fmt.Sprintf("%s: %d refusals have a sentence of their own, and had %d: a new one is in %s", dir, n, had, sentencesFile))
		}
	}
	slices.Sort(problems)
	for _, p := range problems {
		t.Error(p)
	}
	fresh := sentencePage(table, order)
	if *update {
		if err := os.WriteFile(filepath.Join(s.root, filepath.FromSlash(sentencesPage)), []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text(t, sentencesPage) != fresh {
		t.Errorf("%s is not fresh: go test ./internal/law -run Sentences -update", sentencesPage)
	}
}

// sentencePage is the table as a page.
func sentencePage(table map[string]string, order []string) string {
	var b strings.Builder
	b.WriteString("# Sentences\n\n")
	wrap(&b, "", "What operators read on every face, by id. A value stands as {name}, a number with its noun as {name:noun}, and a word that agrees with a number as {name?one|several}. Written by `go test ./internal/law -run Sentences -update` from `"+sentencesFile+"`.")
	for _, id := range order {
		if strings.HasPrefix(id, "#") {
			b.WriteString("\n" + id + "\n\n")
			continue
		}
		wrap(&b, "- ", "`"+id+"`: "+table[id])
	}
	return b.String()
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// said is a command that a text has.
type said struct {
	place string
	words []string // without duly
	whole bool     // the words are all of it, not the beginning of a sentence
	named bool     // in a sentence of the documentation, where values may be left out
}

// shellEnds cuts off what is no part of a command: another command, a comment, a file that it writes.
var shellEnds = regexp.MustCompile(`\s+(#|>|\||&&|\(|2>|·|or --).*$|;.*$|, .*$`)

// wordsOf splits a command as a shell does; quotes keep words together.
func wordsOf(text string) (words []string) {
	var word strings.Builder
	quote, some := rune(0), false
	for _, c := range text {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, some = c, true
		case quote == 0 && (c == ' ' || c == '\n' || c == '\t'):
			if some {
				words = append(words, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteRune(c)
			some = true
		}
	}
	if some {
		words = append(words, word.String())
	}
	return words
}

// textOf is the text of an expression of literals; what is none stands as a verb.
func textOf(e ast.Expr) (text string, some bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		a, one := textOf(e.X)
		b, other := textOf(e.Y)
		if e.Op == token.ADD && (one || other) {
			return a + b, true
		}
	}
	return "%s", false
}

var (
	inProse   = regexp.MustCompile("\\bduly ([a-z][^\\n`);]*)")
	inSpan    = regexp.MustCompile("`duly ([a-z][^`]*)`")
	inFence   = regexp.MustCompile(`(?m)^\s*(?:\$ )?duly ([a-z].*)$`)
	fences    = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	blocks    = regexp.MustCompile(`\{\{(if|else|end|with|range)[^}]*\}\}`)
	actionsOf = regexp.MustCompile(`\{\{[^}]*\}\}`)
	tags      = regexp.MustCompile(`</?[a-z][^>]*>`)
)

// saidIn collects the commands of a text that people read.
func saidIn(place, text string, page bool) (all []said) {
	add := func(command string, whole, named bool) {
		all = append(all, said{place, wordsOf(shellEnds.ReplaceAllString(command, "")), whole, named})
	}
	if page {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for _, fence := range fences.FindAllString(text, -1) {
			for _, m := range inFence.FindAllStringSubmatch(fence, -1) {
				add(m[1], true, false)
			}
		}
		text = fences.ReplaceAllString(text, "")
	}
	for _, m := range inSpan.FindAllStringSubmatch(text, -1) {
		add(m[1], true, page || strings.HasSuffix(place, ".html"))
	}
	help := strings.Contains(text, `help:"`) // of a flag or command
	if help {
		text = strings.ReplaceAll(text, `"`, "\n")
	}
	if !page {
		for _, m := range inProse.FindAllStringSubmatch(inSpan.ReplaceAllString(text, ""), -1) {
			add(strings.TrimRight(m[1], ".,:"), false, help)
		}
	}
	return all
}

// allSaid are the commands in the program's texts, the console's pages and the documentation.
func allSaid(t *testing.T) (all []said) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "bench", "tools", "test", "testdata", "node_modules", "decisions", "generated", "law"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		switch ext := filepath.Ext(name); {
		case name == "CHANGELOG.md": // tells of what was
		case ext == ".md" || ext == ".html":
			text, err := os.ReadFile(path)
			if ext == ".html" {
				text = actionsOf.ReplaceAll(tags.ReplaceAll(blocks.ReplaceAll(text, nil), []byte("`")), []byte("%s"))
			}
			all = append(all, saidIn(name, string(text), ext == ".md")...)
			return err
		case ext == ".go":
			if strings.HasSuffix(name, "_test.go") {
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, is := n.(ast.Expr)
				if !is {
					return true
				}
				text, some := textOf(e)
				if some {
					all = append(all, saidIn(fmt.Sprint(name, ":", files.Position(e.Pos()).Line), text, false)...)
				}
				return !some
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var placeholder = regexp.MustCompile(`%[a-z]|<[^>]*>|^[A-Z][A-Z0-9_-]*$|…|\[`)

// filled is a command with something for each placeholder; -: it lacks it.
func filled(words []string, values []string) []string {
	out := slices.Clone(words)
	for i, w := range out {
		for placeholder.MatchString(w) && w != "{…}" && (w != "FILE" || len(values) > 0) {
			value := "1"
			if len(values) > 0 {
				value, values = values[0], values[1:]
			}
			if at := placeholder.FindStringIndex(w); at != nil {
				w = w[:at[0]] + value + w[at[1]:]
			}
		}
		out[i] = strings.ReplaceAll(w, "{…}", "{}")
	}
	return out
}

// TestWhatIsPrintedRuns: each command that a text of the program, a page of the console or of the documentation has is one
// of the program, with flags that there are; what asks a node is run against one with such a thing in it, and is no wrong use.
//
// covers: O6
func TestWhatIsPrintedRuns(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	all := allSaid(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"order.yaml": "name: order\nversion: 7\nsteps:\n- name: charge\n  agent: payment.charge\n", "nightly.yaml": "name: nightly\ntype: order\nevery: 1h\ninput: {}\n",
		"order.json": "{}", "slow.json": "{}", "tasks.ndjson": `{"id":"n-2","type":"order","input":{}}`, "failed.ndjson": "", "FILE": "{}",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ran, seen := 0, map[string]bool{}
	for _, s := range all {
		words, ok := meant(t, s)
		line := strings.Join(words, " ")
		if !ok || seen[line] || len(words) == 0 {
			continue
		}
		seen[line] = true
		if code, out := runIn(t, words); code == exitUse {
			t.Errorf("%s: duly %s: wrong use: %s", s.place, line, out)
		}
		ran++
	}
	if ran < 30 {
		t.Errorf("only %d commands were run", ran)
	}
	t.Logf("%d commands ran, of %d", ran, len(seen))
}

// meant are the words of a command as they can be run; none: they only name it. false: they were refused, and that is told.
func meant(t *testing.T, s said) (words []string, ok bool) {
	t.Helper()
	node, path := commandOf(s.words)
	if path == "" {
		if s.whole {
			t.Errorf("%s: duly %s: there is no such command", s.place, strings.Join(s.words, " "))
		}
		return nil, false
	}
	if len(s.words) == len(strings.Fields(path)) {
		return nil, true // it is named, and not to be run as it stands
	}
	n := len(s.words)
	if n > 1 && s.words[n-1] == "…" && !strings.HasPrefix(s.words[n-2], "-") {
		s.words, s.named = s.words[:n-1], true // what it needs beside is left out
	}
	all := filled(s.words, standsFor(path))
	if _, path = commandOf(all); len(all) == len(strings.Fields(path)) && (s.named || s.whole) {
		return nil, true
	}
	for k := len(all); k >= len(strings.Fields(path)); k-- {
		err := parses(all[:k])
		switch {
		case err == nil && (n > len(s.words) || !asksNode(path) || strings.Contains(strings.Join(all, " "), "--payload-keys") || strings.Contains(strings.Join(all, " "), "--database-url")):
			return nil, true
		case err == nil:
			return all[:k], true
		case strings.Contains(err.Error(), "are not given") || strings.Contains(strings.Join(s.words, " "), "--%s"), err != nil && strings.Contains(err.Error(), "agents: not given"):
			return nil, true // what a node needs beside it is not said
		case s.named && (strings.Contains(err.Error(), "expected ") || strings.HasPrefix(err.Error(), "missing ") || strings.Contains(err.Error(), "missing value")):
			return nil, true
		case s.whole || k > 0 && strings.HasPrefix(all[k-1], "-"):
			t.Errorf("%s: duly %s: %v", s.place, strings.Join(all, " "), err)
			return nil, false
		}
	}
	if len(node.Children) == 0 || !s.whole {
		t.Errorf("%s: duly %s: %v", s.place, strings.Join(all, " "), parses(all))
	}
	return nil, false
}

var model = sync.OnceValue(func() *kong.Application {
	var c cli
	return kong.Must(&c, options(streams{nil, &bytes.Buffer{}, &bytes.Buffer{}})...).Model
})

// commandOf finds the command that words begin with, and its name.
func commandOf(words []string) (*kong.Node, string) {
	node, path := model().Node, ""
	for _, w := range words {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == w })
		if i < 0 {
			break
		}
		node, path = node.Children[i], strings.TrimSpace(path+" "+w)
	}
	return node, path
}

func parses(words []string) error {
	var c cli
	parser, err := kong.New(&c, append(options(streams{nil, &bytes.Buffer{}, &bytes.Buffer{}}), kong.Exit(func(int) {}))...)
	if err == nil {
		_, err = parser.Parse(words)
	}
	return err
}

// asksNode reports whether a command asks a node's API, and ends by itself.
func asksNode(path string) bool {
	first, _, _ := strings.Cut(path, " ")
	return !slices.Contains([]string{"dev", "demo", "serve", "migrate", "task-streams", "new-installation", "outbox", "verify", "doctor", "conformance", "shadow", "profile", "completion",
		"health", "nats-permissions", "nats-mappings", "version", "top", "tail"}, first) && !slices.Contains([]string{"task watch", "failures repair", "plan migrate"}, path)
}

// standsFor are the values of a command's placeholders.
func standsFor(path string) []string {
	for name, values := range map[string][]string{
		"agents": {"payment.charge"}, "limits": {"payment.charge"}, "pause lift": {"p1"}, "pause set": {"payment.charge"}, "failures": {"g1"}, "note": {"g1"}, "op": {"op1"},
		"schedule apply": {"nightly.yaml"}, "schedule": {"nightly"}, "plan apply": {"order.yaml"}, "plan lint": {"order.yaml"}, "plan": {"order"}, "signal": {"order", "t-0", "approve", ""},
		"get": {"order", "t-5"}, "task": {"order", "t-5"}, "submit": {"order", "n-1"}, "export": {"order", "t-5"}, "why": {"t-5"}, "cancel": {"order", "t-1"}, "accept-loss": {"TASKS"}, "token": {"ci"},
	} {
		if path == "task" { // which of them the page says
			return []string{"accept", "order", "t-5"}
		}
		if (path == name || strings.HasPrefix(path, name+" ")) && (name != "plan" && name != "schedule" || path != name+" apply" && path != name+" lint") {
			return values
		}
	}
	return nil
}

// runIn runs a command against a node of a world of its own, and gives its exit status and what it said.
func runIn(t *testing.T, words []string) (int, string) {
	t.Helper()
	w := apitest.New()
	w.Held = []operate.Pause{{ID: "p1", Agent: "payment.charge", At: apitest.At, By: "olga", Reason: "r"}}
	w.Breaks = []core.Breaker{{Agent: "payment.charge", State: core.BreakerOpen, Forced: true, By: "olga", Reason: "r"}}
	w.Bounds = []operate.AgentLimit{{Limit: core.Limit{Agent: "payment.charge", Concurrent: 3}}}
	handler, err := w.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(apitest.As(operate.RoleAdmin, handler))
	defer server.Close()
	t.Setenv("DULY_URL", server.URL)
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // of what follows something that does not end
	defer cancel()
	code := run(ctx, words, streams{strings.NewReader(""), &out, &out})
	return code, out.String()
}

// TestTaskIsNamedEitherWay: every command that is about a task takes type and id, and type/id, and says the same.
//
// covers: O6
func TestTaskIsNamedEitherWay(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, c := range [][]string{
		{"get", "order", "t-5", "-o", "json"}, {"why", "order", "t-5"}, {"cancel", "order", "t-1"}, {"submit", "order", "n-1", "{}"}, {"export", "order", "t-5"}, {"replay", "order", "t-5"},
		{"diff", "order", "t-5", "order", "t-4"}, {"signal", "order", "t-0", "approve", "true", "--key", "k"}, {"task", "undo", "order", "t-5", "--reason", "r", "--key", "k"},
		{"task", "resubmit", "order", "t-5", "--key", "k"}, {"task", "journal", "order", "t-5"}, {"task", "children", "order", "t-5"}, {"task", "watch", "order", "t-5"}, {"task", "extend", "--until", "1h", "--key", "k", "order", "t-1"},
		{"task", "edit", "order", "t-5", "--input", "{}", "--reason", "r", "--key", "k"}, {"task", "accept", "order", "t-5", "--result", "1", "--reason", "r", "--key", "k"}, {"task", "resolve", "order", "t-5", "--as", "undone", "--reason", "r", "--key", "k"},
	} {
		var joined []string
		for _, w := range c {
			if n := len(joined); n > 0 && joined[n-1] == "order" {
				joined[n-1] += "/" + w
				continue
			}
			joined = append(joined, w)
		}
		at := regexp.MustCompile(`127\.0\.0\.1:\d+|\d\d:\d\d:\d\d`)
		one, says := runIn(t, c)
		other, same := runIn(t, joined)
		if one != other || at.ReplaceAllString(says, "") != at.ReplaceAllString(same, "") || one == exitUse || one == exitNotFound {
			t.Errorf("duly %s: exit %d %s\nduly %s: exit %d %s", strings.Join(c, " "), one, says, strings.Join(joined, " "), other, same)
		}
	}
	if code, says := runIn(t, []string{"get", "order/"}); code != exitUse || !strings.Contains(says, "want type/id") {
		t.Errorf("half a name: exit %d %s", code, says)
	}
}

// TestDevIsUpOnceItIs: a port that is taken is an error, and no word of being up; a setting that cannot be is refused, and not
// passed over.
//
// covers: O6
func TestDevIsUpOnceItIs(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	if code, out, errs := command(t, "", "dev", "--port", port, "--nats-port", "0"); code != exitFailed || strings.Contains(out, "is up") || !strings.Contains(errs, "another program has that port: --port names another") {
		t.Errorf("port %s is taken: exit %d %s%s", port, code, out, errs)
	}
	if code, _, errs := command(t, "", "dev", "--port", "0", "--nats-port", port); code != exitFailed || !strings.Contains(errs, "another program has that port: --nats-port names another") {
		t.Errorf("port %s is taken: exit %d %s", port, code, errs)
	}
	t.Setenv("DULY_OUTBOX", "database") // which SQLite has no table for
	if code, out, errs := command(t, "", "dev", "--port", "0", "--nats-port", "0"); code != exitUse || out != "" || !strings.Contains(errs, "outbox") {
		t.Errorf("an outbox: exit %d %s%s", code, out, errs)
	}
}

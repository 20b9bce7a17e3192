package law

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestIndex: docs/index.md leads to every page below docs, and to each decision once.
//
// covers: U6
func TestIndex(t *testing.T) {
	links := map[string]int{}
	for _, m := range link.FindAllStringSubmatch(text(t, "docs/index.md"), -1) {
		page, _, _ := strings.Cut(m[1], "#")
		links["docs/"+page]++
	}
	for _, page := range sources(t).pages(t) {
		n := links[page]
		switch {
		case !strings.HasPrefix(page, "docs/") || page == "docs/index.md":
		case n == 0:
			t.Errorf("docs/index.md does not lead to %s", page)
		case n > 1 && path.Dir(page) == decisionsDir:
			t.Errorf("docs/index.md has %s %d times", page, n)
		}
	}
}

// TestTransactionsAreOffered: who must submit with the data of a transaction is led to what there is for it.
//
// covers: U7
func TestTransactionsAreOffered(t *testing.T) {
	_, section, _ := strings.Cut(text(t, "README.md"), "\n## When not to use it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains(section, "](docs/guide/submit-in-a-transaction.md)") {
		t.Error("README.md, \"When not to use it\", does not lead to submissions in a transaction")
	}
}

// connections are how programs connect to NATS, by the ends of their files' names, and what makes them come back however long
// it was away. Clients on plain sockets have loops of their own.
var connections = []struct{ ends, connects, comesBack string }{
	{".go", `\bnats\.Connect\(`, `nats\.MaxReconnects\(-1\)`},
	{".md", `\bnats\.Connect\(`, `nats\.MaxReconnects\(-1\)`},
	{".mjs", `\bconnect\(\{`, `maxReconnectAttempts: -1`},
	{".md", `\bconnect\(\{`, `maxReconnectAttempts: -1`},
}

// givesUp names the lines of a text after which a program ends when NATS is away for long: what comes back stands in the line
// or in the one before.
func givesUp(name, text string) (all []string) {
	for _, c := range connections {
		if !strings.HasSuffix(name, c.ends) {
			continue
		}
		connects, comesBack := regexp.MustCompile(c.connects), regexp.MustCompile(c.comesBack)
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if connects.MatchString(line) && !comesBack.MatchString(strings.Join(lines[max(0, i-1):i+1], "\n")) {
				all = append(all, fmt.Sprintf("%s:%d: it gives up after two minutes without NATS: %s", name, i+1, strings.TrimSpace(line)))
			}
		}
	}
	return all
}

// TestExamplesComeBack: no program of the examples and no code of a page gives up while NATS is away.
//
// covers: U2
func TestExamplesComeBack(t *testing.T) {
	for _, spoilt := range []string{"x.go\nnc, err := nats.Connect(url)", "x.md\n`nats.Connect(url)`", "x.mjs\nawait connect({ servers: url });"} {
		name, text, _ := strings.Cut(spoilt, "\n")
		if len(givesUp(name, text)) != 1 {
			t.Errorf("nothing is found in %q", spoilt)
		}
	}
	root := repository(t)
	for _, dir := range []string{".", "docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(at string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (dir == "." && at != root || entry.Name() == "node_modules" || entry.Name() == "testdata"):
				return fs.SkipDir
			case entry.IsDir() || strings.HasSuffix(at, "_test.go") || strings.HasSuffix(at, ".test.mjs"):
				return nil
			}
			name, err := filepath.Rel(root, at)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(at)
			for _, line := range givesUp(filepath.ToSlash(name), string(data)) {
				t.Error(line)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

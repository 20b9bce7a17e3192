package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// outside are folders whose code is not the product's: laboratory, examples, tools, and what only tests use.
var outside = []string{
	"bench", "examples", "tools", "test", "dulytest", "internal/sim", "internal/law", "internal/pgtestdb", "internal/pgfault",
	"internal/natstest", "internal/api/apitest", "internal/wire/wiretest", "internal/submit/submittest", "internal/testrun", "schema/storetest",
}

func isOutside(name string) bool {
	return slices.ContainsFunc(outside, func(folder string) bool { return strings.HasPrefix(name+"/", folder+"/") })
}

// tree is all text of a source tree, by the names of its files below the root.
type tree map[string]string

// readTree leaves out testdata, hidden folders and what the build leaves behind.
func readTree(root string) (tree, error) {
	all := tree{}
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if at != root && (base == "testdata" || base == "bin" || base[0] == '.' || base[0] == '_') {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(base) {
		case ".go", ".md", ".mod", ".sql":
		default:
			return nil
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(at)
		all[filepath.ToSlash(name)] = string(text)
		return err
	})
	return all, err
}

// product are the Go files of the product, without tests.
func (t tree) product() (names []string) {
	for _, name := range keys(t) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !isOutside(name) {
			names = append(names, name)
		}
	}
	return names
}

// lines are the lines of code, and of nothing but comment, of the product's files in some folders; none: all.
func (t tree) lines(folders ...string) (code, comments int) {
	for _, name := range t.product() {
		in := func(folder string) bool { return strings.HasPrefix(name, folder+"/") }
		if len(folders) == 0 || slices.ContainsFunc(folders, in) {
			of, about := lines([]byte(t[name]))
			code, comments = code+of, comments+about
		}
	}
	return code, comments
}

// generatedPages are those of docs, beside docs/generated, that a test or a tool writes whole.
var generatedPages = []string{"docs/operators-criteria.md", "docs/reference/metrics.md", "docs/third-party.md"}

// words are those that people write: README, ARCHITECTURE and docs, without pages that a test or a tool writes.
func (t tree) words() (n int) {
	for name, text := range t {
		written := strings.HasPrefix(name, "docs/") && !strings.HasPrefix(name, "docs/generated/") && !slices.Contains(generatedPages, name)
		if strings.HasSuffix(name, ".md") && (written || name == "README.md" || name == "ARCHITECTURE.md") {
			n += len(strings.Fields(text))
		}
	}
	return n
}

// required are direct requirements in a go.mod.
var required = regexp.MustCompile(`(?m)^(?:require )?\s*[^\s/]\S*\.\S+/?\S* v\S+$`)

func (t tree) dependencies() int { return len(required.FindAllString(t["go.mod"], -1)) }

// naming are the lines below some folders that have a word outside comments, and the files that have one.
func (t tree) naming(word *regexp.Regexp, places ...string) (found, files int) {
	for _, name := range keys(t) {
		below := func(place string) bool { return name == place || strings.HasPrefix(name, place+"/") }
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md") || isOutside(name) || !slices.ContainsFunc(places, below) {
			continue
		}
		was := found
		for line := range strings.Lines(t[name]) {
			line, _, _ = strings.Cut(line, "//")
			if line, _, _ = strings.Cut(line, "--"); word.MatchString(line) {
				found++
			}
		}
		if found > was {
			files++
		}
	}
	return found, files
}

// migrations are the files that change a schema.
func (t tree) migrations() (n int) {
	for name := range t {
		if strings.HasPrefix(name, "schema/migrations/") && strings.HasSuffix(name, ".sql") {
			n++
		}
	}
	return n
}

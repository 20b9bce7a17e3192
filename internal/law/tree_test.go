package law

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// folder is one directory with Go files.
type folder struct {
	// name is the path below the root, with slashes; "." is the root.
	name string
	// foreign folders belong to a nested module: the law of imports is not about
	// them, the rules on comments and sleeping are.
	foreign bool
	files   []file
}

// file is one parsed Go file. Build constraints are not looked at: a file for
// another system keeps the law too.
type file struct {
	// name is the path below the root, with slashes.
	name string
	test bool
	fset *token.FileSet
	ast  *ast.File
}

// forest is every folder with Go files below a root.
type forest []folder

// breach is one violation, with the place to look at.
type breach struct {
	file string
	line int
	text string
}

// String gives file:line: text.
func (b breach) String() string { return fmt.Sprintf("%s:%d: %s", b.file, b.line, b.text) }

// read parses all Go files below root, leaving out testdata, hidden folders and
// what the build leaves behind.
func read(root string) (forest, error) {
	var (
		found   forest
		foreign []string
	)
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if name != "." && skipped(name) {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil && name != "." && name != laboratory {
			foreign = append(foreign, name)
		}
		files, err := parse(root, name)
		if err != nil || len(files) == 0 {
			return err
		}
		outside := slices.ContainsFunc(foreign, func(nested string) bool { return within(name, nested) })
		found = append(found, folder{name: name, foreign: outside, files: files})
		return nil
	})
	return found, err
}

// laboratory is a module of its own that is held to the map all the same: it knows the
// product from inside.
const laboratory = "bench"

func skipped(name string) bool {
	base := path.Base(name)
	return base == "testdata" || base == "vendor" || name == "bin" || base[0] == '.' || base[0] == '_'
}

// parse reads the Go files of one folder.
func parse(root, name string) ([]file, error) {
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, entry := range entries {
		base := entry.Name()
		if entry.IsDir() || !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_' {
			continue
		}
		fset := token.NewFileSet()
		full := filepath.Join(root, filepath.FromSlash(name), base)
		parsed, err := parser.ParseFile(fset, full, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file{
			name: path.Join(name, base),
			test: strings.HasSuffix(base, "_test.go"),
			fset: fset,
			ast:  parsed,
		})
	}
	return files, nil
}

// within holds for tree itself and everything below it.
func within(name, tree string) bool {
	return name == tree || strings.HasPrefix(name, tree+"/")
}

// covers holds if a name of the map, which may end in "/...", means the package.
func covers(pattern, name string) bool {
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(name, tree)
	}
	return pattern == name
}

func coversAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, name) })
}

func (f file) breach(at token.Pos, format string, args ...any) breach {
	return breach{file: f.name, line: f.fset.Position(at).Line, text: fmt.Sprintf(format, args...)}
}

// Command report prints how large the files and functions of a source tree are,
// the share of comments, and how much test code stands beside the source. It
// never fails over a figure: the aims it prints are for a reader to compare.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// size is one file or function and its lines.
type size struct {
	name  string
	lines int
}

// report is what was counted. Functions and comments are those of source files;
// tests count only as lines.
type report struct {
	files, functions      []size
	code, comments, tests int
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: report FOLDER")
		os.Exit(2)
	}
	var counted report
	if err := counted.walk(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	counted.print()
	product, err := measure(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	product.print()
}

func (r *report) walk(root string) error {
	return filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
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
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		return r.add(name, at)
	})
}

func (r *report) add(name, at string) error {
	source, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, at, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	code, comments := lines(source)
	if strings.HasSuffix(name, "_test.go") {
		r.tests += code
		return nil
	}
	r.code += code
	r.comments += comments
	r.files = append(r.files, size{name, strings.Count(string(source), "\n")})
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		from, to := fset.Position(function.Pos()).Line, fset.Position(function.End()).Line
		r.functions = append(r.functions, size{fmt.Sprintf("%s:%d %s", name, from, function.Name.Name), to - from + 1})
	}
	return nil
}

// lines counts the lines that hold code and those that hold nothing but comment;
// blank lines are neither.
func lines(source []byte) (code, comments int) {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(source))
	var scan scanner.Scanner
	scan.Init(file, source, nil, scanner.ScanComments)
	coded, commented := map[int]bool{}, map[int]bool{}
	for {
		at, kind, text := scan.Scan()
		if kind == token.EOF {
			break
		}
		// A semicolon that the scanner put in stands on no line of its own.
		if kind == token.SEMICOLON && text == "\n" {
			continue
		}
		marks := coded
		if kind == token.COMMENT {
			marks = commented
		}
		from := fset.Position(at).Line
		for line := range strings.Count(text, "\n") + 1 {
			marks[from+line] = true
		}
	}
	for line := range commented {
		if !coded[line] {
			comments++
		}
	}
	return len(coded), comments
}

func (r *report) print() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "lines of\tcount\tmedian\tp90\tmax\taim\tlargest")
	row(table, "files", r.files, "median 150, max 500")
	row(table, "functions", r.functions, "median 10, p90 35, max 70")
	table.Flush()
	if r.code == 0 {
		return
	}
	fmt.Printf("\ncomments  %.0f %% of source lines (aim 15–25 %%)\n", 100*float64(r.comments)/float64(r.code+r.comments))
	fmt.Printf("tests     %d lines for %d of source: ratio %.2f (aim 1 or more)\n", r.tests, r.code, float64(r.tests)/float64(r.code))
	long := slices.DeleteFunc(slices.Clone(r.functions), func(f size) bool { return f.lines <= 70 })
	for _, function := range long {
		fmt.Printf("long      %s: %d lines\n", function.name, function.lines)
	}
}

// row sorts sizes and prints their distribution.
func row(table *tabwriter.Writer, title string, sizes []size, aim string) {
	if len(sizes) == 0 {
		fmt.Fprintf(table, "%s\t0\t\t\t\t%s\t\n", title, aim)
		return
	}
	slices.SortFunc(sizes, func(a, b size) int { return a.lines - b.lines })
	at := func(share float64) int { return sizes[int(share*float64(len(sizes)-1))].lines }
	largest := sizes[len(sizes)-1]
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", title, len(sizes), at(0.5), at(0.9), largest.lines, aim, largest.name)
}

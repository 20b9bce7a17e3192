package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
	"text/tabwriter"
)

// functionMost is how many lines a function should have at most.
const functionMost = 70

// size is one file or function and its lines.
type size struct {
	name  string
	lines int
}

// sizes are those of all source files that are not generated. Tests count only as lines of code.
type sizes struct {
	files, functions []size
	code, tests      int
}

func (t tree) sizes() (s sizes, err error) {
	for _, name := range keys(t) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, t[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return s, err
		}
		if ast.IsGenerated(file) {
			continue
		}
		code, _ := lines([]byte(t[name]))
		if strings.HasSuffix(name, "_test.go") {
			s.tests += code
			continue
		}
		s.code += code
		s.files = append(s.files, size{name, strings.Count(t[name], "\n")})
		for _, decl := range file.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok {
				from, to := fset.Position(function.Pos()).Line, fset.Position(function.End()).Line
				s.functions = append(s.functions, size{fmt.Sprintf("%s:%d %s", name, from, function.Name.Name), to - from + 1})
			}
		}
	}
	return s, nil
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

func (s *sizes) print(table *tabwriter.Writer) {
	fmt.Fprintln(table, "lines of\tcount\tmedian\tp90\tp99\tmax\taim\tlargest")
	printSizes(table, "files", s.files, "median 150, max 500")
	printSizes(table, "functions", s.functions, fmt.Sprintf("median 10, p90 35, max %d", functionMost))
	fmt.Fprintf(table, "tests\t%d, %.2f of what they test\n", s.tests, float64(s.tests)/float64(max(1, s.code)))
	for _, function := range s.functions { // sorted by now
		if function.lines > functionMost {
			fmt.Fprintf(table, "long\t%s: %d\n", function.name, function.lines)
		}
	}
}

// printSizes sorts sizes and prints their distribution.
func printSizes(table *tabwriter.Writer, title string, of []size, aim string) {
	if len(of) == 0 {
		return
	}
	slices.SortFunc(of, func(a, b size) int { return a.lines - b.lines })
	at := func(share float64) int { return of[int(share*float64(len(of)-1))].lines }
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", title, len(of), at(0.5), at(0.9), at(0.99), at(1), aim, of[len(of)-1].name)
}

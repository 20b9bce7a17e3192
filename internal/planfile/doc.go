// Package planfile reads and writes plans as files, YAML or JSON: the form of package planform, with durations as text,
// steps in any order, and errors that point into the file. [Parse] does the same for files of another kind.
package planfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// BytesMax bounds a file.
const BytesMax = 1 << 20

// errorsMax bounds how many errors are told at once.
const errorsMax = 20

// pos is a place in a file: line and column from 1, the column in characters.
type pos struct{ line, column int }

// Error is what is wrong at a place of a file.
type Error struct {
	File         string
	Line, Column int
	Text         string
	source       string // the line
}

// Error is file:line:column: text, and the line with a caret below the place.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
	if strings.TrimSpace(e.source) == "" || len(e.source) > 200 {
		return text
	}
	return text + "\n" + expr.Caret(e.source, e.Column)
}

// errorList is all that is wrong with a file, in the order of its lines. It wraps core.ErrPlan.
type errorList []*Error

// Error has one after the other.
func (e errorList) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap gives core.ErrPlan.
func (e errorList) Unwrap() error { return core.ErrPlan }

// file is one that is read, and what is wrong with it.
type file struct {
	name   string
	want   string       // what it should hold; empty: a plan
	blind  bool         // see Tree.Blind
	hidden map[int]bool // lines that are not shown
	lines  []string
	errors errorList
}

func (f *file) wrong(at pos, format string, args ...any) {
	e := &Error{File: f.name, Line: at.line, Column: at.column, Text: core.ShortText(fmt.Sprintf(format, args...), 1000)}
	if f.blind {
		if f.hidden == nil {
			f.hidden = map[int]bool{}
		}
		f.hidden[at.line] = true
	}
	if at.line >= 1 && at.line <= len(f.lines) {
		e.source = strings.TrimRight(f.lines[at.line-1], "\r")
	}
	f.errors = append(f.errors, e)
}

// err is all that is wrong, or nil.
func (f *file) err() error {
	if len(f.errors) == 0 {
		return nil
	}
	for _, e := range f.errors {
		if f.hidden[e.Line] {
			e.source = ""
		}
	}
	slices.SortStableFunc(f.errors, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if more := len(f.errors) - errorsMax; more > 0 {
		next := f.errors[errorsMax]
		f.errors = append(f.errors[:errorsMax:errorsMax], &Error{File: f.name, Line: next.Line, Column: next.Column, Text: fmt.Sprintf("and %d more from here on", more)})
	}
	return f.errors
}

// Package sheet writes words of others so that they are safe to open: no cell of CSV is a formula for a spreadsheet, and
// nothing moves the cursor of a terminal.
package sheet

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Writer writes lines of cells that may have come from anywhere.
type Writer struct{ csv *csv.Writer }

// NewWriter makes a writer. What it writes leaves with Flush.
func NewWriter(w io.Writer) *Writer { return &Writer{csv.NewWriter(w)} }

// Write writes one line. Error: that of the writer below.
func (w *Writer) Write(cells []string) error {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = Cell(cell)
	}
	return w.csv.Write(safe)
}

// Flush lets what was written leave, and returns the first error of writing.
func (w *Writer) Flush() error {
	w.csv.Flush()
	return w.csv.Error()
}

// formulas begin one, where a spreadsheet begins a cell.
const formulas = `-=+@|%＝＋－＠` // as a class of a regular expression has them, too

// inside is where a text begins a cell for a spreadsheet that was told, or that knows by its country, of another separator than
// the comma: there a quote within a cell keeps none off.
var inside = regexp.MustCompile(`([;\t\n\r][ "]*)([` + formulas + `])`)

// Cell is a text as a cell: one that a spreadsheet would take for a formula begins with an apostrophe, also within the text
// where another separator than the comma begins a cell, and control characters other than tabs and ends of lines are replaced.
func Cell(text string) string {
	text = strings.Map(func(r rune) rune {
		if Moves(r) && r != '\t' && r != '\n' && r != '\r' {
			return '\uFFFD'
		}
		return r
	}, text)
	text = inside.ReplaceAllString(text, `$1'$2`)
	if begin := strings.TrimLeft(text, " \n"); begin != "" && strings.ContainsRune("\t\r"+formulas, []rune(begin)[0]) {
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return "'" + text
		}
	}
	return text
}

// Moves reports whether a character is a control one, or turns the direction of what follows: a terminal acts by it.
func Moves(r rune) bool {
	return unicode.IsControl(r) || r >= '\u202A' && r <= '\u202E' || r >= '\u2066' && r <= '\u2069' || r == '\u200E' || r == '\u200F' || r == '\u061C'
}

// JSON is JSON in which characters that may stand in a text as they are, and that a terminal acts by, are escaped.
func JSON(data []byte) []byte {
	acts := func(r rune) bool { return r > '~' && Moves(r) }
	if !bytes.ContainsFunc(data, acts) {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) {
		if acts(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

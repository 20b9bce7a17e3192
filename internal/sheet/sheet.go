// Package sheet writes words of others so that they are safe to open: no cell of CSV is a formula for a spreadsheet, and
// nothing moves the cursor of a terminal.
package sheet

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Writer writes lines of cells that may have come from anywhere.
type Writer struct{ csv *csv.Writer }

// NewWriter makes a writer. What it writes leaves with Flush.
func NewWriter(w io.Writer) *Writer { return &Writer{csv.NewWriter(w)} }

// Write writes one line. Error: that of the writer below.
func (w *Writer) Write(cells []string) error {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = safeCell(cell)
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

// safeCell is a text as a cell: one that a spreadsheet would take for a formula begins with an apostrophe, also within the text
// where another separator than the comma begins a cell, and control characters other than tabs and ends of lines are replaced.
func safeCell(text string) string {
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
	if !bytes.ContainsFunc(data, acts) {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) {
		b.WriteString(Shown(r))
	}
	return b.Bytes()
}

// acts reports whether a character moves more than the end of a line or a tab does.
func acts(r rune) bool { return Moves(r) && r != '\n' && r != '\t' && r != '\r' }

// Shown is a character, or, of one that a terminal acts by, its escape in JSON. Tabs and ends of lines are as they are.
func Shown(r rune) string {
	if acts(r) {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return string(r)
}

// whole are elements whose text holds no elements of HTML.
var whole = []string{"textarea", "title", "option", "svg", "script", "style"}

// HTML is HTML in whose texts characters that act can be seen, as JSON escapes them, and letters that are written from right
// to left are isolated: what stands around them keeps its order. In attributes, which scripts and forms send back, and in
// elements that hold text alone, nothing is isolated. < and > must stand around tags alone, as html/template has it.
func HTML(page string) string {
	if !strings.ContainsFunc(page, func(r rune) bool { return acts(r) || fromRight(r) }) {
		return page
	}
	var b strings.Builder
	within := "" // one of whole
	for page != "" {
		text, rest, tagged := strings.Cut(page, "<")
		isolate(&b, text, within == "")
		if !tagged {
			break
		}
		tag, after, _ := strings.Cut(rest, ">")
		b.WriteString("<" + tag + ">")
		page = after
		name, _, _ := strings.Cut(strings.TrimPrefix(tag, "/"), " ")
		switch {
		case within == "" && !strings.HasPrefix(tag, "/") && slices.Contains(whole, name):
			within = name
		case tag == "/"+within:
			within = ""
		}
	}
	return b.String()
}

// parts are what text falls into: quotes and ends of lines stand between what is isolated by itself.
var parts = regexp.MustCompile(`&#34;|[“”\n]|(?:[^&“”\n]|&(?:[^#]|#[^3]|#3[^4]))+|&`)

// isolate writes a text, with what is written from right to left in elements of its own if it may have them.
func isolate(b *strings.Builder, text string, may bool) {
	for _, part := range parts.FindAllString(text, -1) {
		first, last := strings.IndexFunc(part, fromRight), strings.LastIndexFunc(part, fromRight)
		if may && first >= 0 {
			_, size := utf8.DecodeRuneInString(part[last:])
			last += size
			part = part[:first] + "<bdi>" + part[first:last] + "</bdi>" + part[last:]
		}
		for _, r := range part {
			b.WriteString(Shown(r))
		}
	}
}

// fromRight reports whether a letter is written from right to left.
func fromRight(r rune) bool {
	return r >= 0x590 && r <= 0x8ff || r >= 0xfb1d && r <= 0xfdff || r >= 0xfe70 && r <= 0xfefc || r >= 0x10800 && r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff
}

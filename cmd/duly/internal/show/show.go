// Package show prints what the API answers: as a table for people, or as JSON, YAML or CSV for programs. A column is a
// path of JSON names of the answer, so that a terminal has the words of the API and no others.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/planfile"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/sheet"
)

// The formats.
const (
	Text = "text"
	JSON = "json"
	YAML = "yaml"
	CSV  = "csv"
)

// Page is where and how to print.
type Page struct {
	W      io.Writer
	Width  int  // in cells; 0: no terminal, so that nothing is cut
	Colour bool // beside the words, never instead of them
	Now    time.Time
}

// terminal is a writer that says how wide it is.
type terminal interface{ TerminalWidth() int }

// On looks at a writer: a terminal has a width and, unless NO_COLOR is set, colours.
func On(w io.Writer) Page {
	p := Page{W: w, Now: time.Now()}
	if t, ok := w.(terminal); ok {
		p.Width = t.TerminalWidth()
	} else if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		const usual = 80
		if p.Width, _, _ = term.GetSize(int(f.Fd())); p.Width <= 0 { // an error leaves 0
			p.Width = usual
		}
	}
	p.Colour = p.Width > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return p
}

// Object is a JSON object whose numbers are as they were written.
type Object = map[string]any

// Objects are the objects of a list.
func Objects(list any) []Object {
	all, _ := list.([]any)
	rows := make([]Object, 0, len(all))
	for _, e := range all {
		if row, ok := e.(Object); ok {
			rows = append(rows, row)
		}
	}
	return rows
}

// Decode reads JSON without changing its numbers.
func Decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	return nil
}

// Raw prints an answer as JSON, as it came but for characters that a terminal acts by, which are escaped, or as YAML.
func Raw(w io.Writer, format string, data []byte) error {
	data = bytes.TrimSpace(data)
	if format == YAML {
		text, err := planfile.YAML(data)
		if err != nil {
			return fmt.Errorf("as YAML: %w", err)
		}
		data = bytes.TrimSpace(text)
	} else {
		data = sheet.JSON(data)
	}
	_, err := fmt.Fprintf(w, "%s\n", data)
	return err
}

// Records prints rows as CSV, with the paths as the first line and values as the API has them, safe to open.
func Records(w io.Writer, columns []string, rows []Object) error {
	out := sheet.NewWriter(w)
	columns, _ = split(columns)
	_ = out.Write(columns) // Error has it
	return records(out, columns, rows)
}

// More prints further rows of Records.
func More(w io.Writer, columns []string, rows []Object) error {
	columns, _ = split(columns)
	return records(sheet.NewWriter(w), columns, rows)
}

func records(out *sheet.Writer, columns []string, rows []Object) error {
	for _, row := range rows {
		record := make([]string, len(columns))
		for i, c := range columns {
			record[i] = plain(at(row, c))
		}
		_ = out.Write(record) // as above
	}
	return out.Flush()
}

// at is the value at a path; nil: there is none.
func at(row Object, path string) any {
	var v any = row
	for name := range strings.SplitSeq(path, ".") {
		o, ok := v.(Object)
		if !ok {
			return nil
		}
		v = o[name]
	}
	return v
}

// plain is a value for programs.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case Object:
		if n, ok := v["n"].(json.Number); ok {
			if atLeast(v) {
				return ">=" + n.String()
			}
			return n.String()
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(data)
}

// atLeast reports whether a count says that there may be more.
func atLeast(count Object) bool {
	is, _ := count["at_least"].(bool)
	return is
}

// Value is a value for people: counts in groups of three, times to the second, and no character that moves the cursor.
func Value(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			if at.Year() <= 1 {
				return "-"
			}
			return at.UTC().Format("2006-01-02T15:04:05Z")
		}
		if v == "" {
			return "-"
		}
		return Clean(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case json.Number:
		return short(v)
	case []any:
		all := make([]string, len(v))
		for i, e := range v {
			all[i] = Value(e)
		}
		if len(all) == 0 {
			return "-"
		}
		return strings.Join(all, ", ")
	case Object:
		if n, ok := v["n"].(json.Number); ok {
			return count(n, v)
		}
		if state, ok := v["state"].(string); ok {
			return stateOf(state, v)
		}
		if step, ok := v["step"].(string); ok {
			n, _ := v["tasks"].(json.Number)
			served := ""
			if not, ok := v["not_served"].(bool); ok && not {
				served = " (not served)"
			}
			return fmt.Sprintf("%s/%s%s: %s", Value(v["type"]), Clean(step), served, count(n, v))
		}
	}
	return Clean(plain(v))
}

// stateOf is a state that has a reason and may have an end: that of a breaker.
func stateOf(state string, v Object) string {
	text := Clean(state)
	if until, ok := v["until"]; ok {
		text += " until " + Value(until)
	}
	if reason, ok := v["reason"]; ok {
		text += ": " + Value(reason)
	}
	return text
}

// short is a number with at most three digits after its point; programs get all of them.
func short(n json.Number) string {
	text := n.String()
	if !strings.ContainsAny(text, ".eE") {
		return text
	}
	f, err := n.Float64()
	if err != nil {
		return text
	}
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(f, 'f', 3, 64), "0"), ".")
}

// count is the number of tasks that an object has.
func count(n json.Number, of Object) string {
	tasks, err := n.Int64()
	if err != nil {
		return Clean(n.String())
	}
	return operate.Count{N: tasks, AtLeast: atLeast(of)}.String()
}

// Clean is text that came from elsewhere, fit for a terminal.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r): // escapes, and what turns the direction of writing
			return '\uFFFD'
		}
		return r
	}, s)
}

// Head is a column's name for people: the last part of its path, so that tally.failed_again is FAILED AGAIN, and created_at is
// CREATED; of an id in another object it is that object's name.
func Head(path string) string {
	path = strings.TrimSuffix(path, ".id")
	name := path[strings.LastIndexByte(path, '.')+1:]
	return strings.ToUpper(strings.ReplaceAll(strings.TrimSuffix(name, "_at"), "_", " "))
}

// optional begins the path of a column that is left out where a row would not be a line.
const optional = "~"

// split takes the marks off the columns, and says which are not optional.
func split(marked []string) (all, needed []string) {
	for _, c := range marked {
		path, may := strings.CutPrefix(c, optional)
		all = append(all, path)
		if !may {
			needed = append(needed, path)
		}
	}
	return all, needed
}

// Paths are the paths of columns without their marks.
func Paths(columns []string) []string {
	all, _ := split(columns)
	return all
}

// keeps reports whether a column is never cut: what is copied into the next command.
func keeps(path string) bool {
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "id", "task", "number", "partition", "state", "name", "type", "last", "at", "tasks":
		return true
	}
	return false
}

const (
	gap       = 2  // between two columns
	leastSaid = 16 // a column is cut to, as long as there are others to leave out
	leastCut  = 8  // a column is not cut below
)

// Table prints rows under their heads. On a terminal long cells are cut so that a row is a line, and optional columns are
// left out, which is said, before so little of a cell is left that it says nothing; where even that is too wide, each row
// becomes a block of lines.
func (p Page) Table(columns []string, rows []Object) {
	all, needed := split(columns)
	var out []string // the columns that are left out
	for is := slices.Clone(all); ; {
		if p.table(is, rows, leastSaid) || len(is) == len(needed) && p.table(is, rows, leastCut) {
			break
		}
		i := len(is) - 1
		for i >= 0 && slices.Contains(needed, is[i]) {
			i--
		}
		if i < 0 {
			p.blocks(all, rows)
			return
		}
		out = append(out, Head(is[i]))
		is = slices.Delete(is, i, i+1)
	}
	if len(out) > 0 {
		fmt.Fprintln(p.W, say.Of("cli.no-room", "columns", strings.Join(out, ", ")))
	}
}

// blocks prints each row as a block of lines.
func (p Page) blocks(columns []string, rows []Object) {
	for i, row := range rows {
		if i > 0 {
			fmt.Fprintln(p.W)
		}
		p.Fields(columns, row)
	}
}

// table prints a table unless it does not fit with so much of every cell.
func (p Page) table(columns []string, rows []Object, least int) bool {
	cells := make([][]string, 0, len(rows)+1)
	head, widths, whole := make([]string, len(columns)), make([]int, len(columns)), make([]bool, len(columns))
	for i, c := range columns {
		head[i], widths[i] = Head(c), ansi.StringWidth(Head(c))
		whole[i] = keeps(c) || slices.ContainsFunc(rows, func(row Object) bool { return isTime(at(row, c)) })
	}
	cells = append(cells, head)
	for _, row := range rows {
		line := make([]string, len(columns))
		for i, c := range columns {
			line[i] = p.cell(at(row, c))
			widths[i] = max(widths[i], ansi.StringWidth(line[i]))
		}
		cells = append(cells, line)
	}
	if !p.fit(columns, widths, whole, least) {
		return false
	}
	for n, line := range cells {
		var b strings.Builder
		for i, cell := range line {
			cell = ansi.Truncate(cell, widths[i], "…")
			pad := widths[i] - ansi.StringWidth(cell) + gap
			if i == len(line)-1 {
				pad = 0
			}
			if n > 0 {
				cell = p.Coloured(columns[i], cell)
			}
			b.WriteString(cell + strings.Repeat(" ", pad))
		}
		fmt.Fprintln(p.W, strings.TrimRight(b.String(), " "))
	}
	return true
}

// isTime reports whether a value is a time, which is never cut.
func isTime(v any) bool {
	text, ok := v.(string)
	if !ok {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, text)
	return err == nil
}

// cell is a value in a table: on a terminal a time is short, as the row is; Fields has all of it.
func (p Page) cell(v any) string {
	text, ok := v.(string)
	moment, err := time.Parse(time.RFC3339Nano, text)
	if !ok || err != nil || p.Width == 0 || moment.Year() <= 1 {
		return Value(v)
	}
	moment = moment.UTC()
	if now := p.Now.UTC(); moment.Year() == now.Year() && moment.YearDay() == now.YearDay() {
		return moment.Format("15:04:05Z")
	}
	return moment.Format("2006-01-02")
}

// fit makes the widest columns narrower until a row is a line. Those that are shown whole stay as they are, and the
// others keep so much.
func (p Page) fit(columns []string, widths []int, whole []bool, least int) bool {
	if p.Width <= 0 {
		return true
	}
	for {
		over := gap*(len(widths)-1) - p.Width
		widest := -1
		for i, w := range widths {
			over += w
			if !whole[i] && w > max(least, len(Head(columns[i]))) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if over <= 0 {
			return true
		}
		if widest < 0 {
			return false
		}
		widths[widest]-- // by one, so that two wide columns share what is missing
	}
}

// Fields prints one object, a field a line; on a terminal long values go on in the next.
func (p Page) Fields(columns []string, row Object) {
	columns, _ = split(columns)
	wide := 0
	for _, c := range columns {
		wide = max(wide, len(Head(c)))
	}
	for _, c := range columns {
		text := Value(at(row, c))
		if p.Width > wide+gap+leastCut {
			text = ansi.Wrap(text, p.Width-wide-gap, "")
		}
		for i, line := range strings.Split(text, "\n") {
			head := ""
			if i == 0 {
				head = Head(c)
			}
			fmt.Fprintln(p.W, strings.TrimRight(fmt.Sprintf("%-*s%s", wide+gap, head, p.Coloured(c, line)), " "))
		}
	}
}

// Line prints one row of a table that has no end: without heads, and without what is empty.
func (p Page) Line(columns []string, row Object) {
	columns, _ = split(columns)
	var parts []string
	wide := 0
	for _, c := range columns {
		text := Value(at(row, c))
		if text == "-" {
			continue
		}
		if p.Width > 0 {
			text = ansi.Truncate(text, max(leastCut, p.Width-wide), "…")
		}
		wide += ansi.StringWidth(text) + gap
		parts = append(parts, p.Coloured(c, text))
	}
	fmt.Fprintln(p.W, strings.Join(parts, "  "))
}

// The colours, as a terminal's own palette has them.
const (
	red, green, yellow, blue = "31", "32", "33", "34"
)

// tint is the colour of a word; the word itself is always there.
var tint = map[string]string{
	"error": red, "failed_again": red, "gave_up": red, "failed": red, "braked": red, "gone": red, "refused": red, "wrong": red, "broken": red,
	"undone": yellow, "undoing": yellow, "paused": yellow, "stopped": yellow, "skipped": yellow, "unknown": yellow, "not known": yellow, "not judged": yellow,
	"processed": green, "done": green, "ok": green, "held": green,
	"processing": blue, "running": blue, "asked": blue,
}

// Coloured is a cell of a column with the colour of its word.
func (p Page) Coloured(path, cell string) string {
	if !p.Colour {
		return cell
	}
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "state", "status", "outcome", "was":
		if c := tint[strings.TrimSpace(cell)]; c != "" {
			return "\x1b[" + c + "m" + cell + "\x1b[0m"
		}
	}
	return cell
}

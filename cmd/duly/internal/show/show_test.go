package show

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/goccy/go-yaml"

	"duly.dev/duly/internal/sheet"
)

var now = time.Date(2026, 11, 25, 14, 0, 0, 0, time.UTC)

func rowsOf(t *testing.T, text string) []Object {
	t.Helper()
	var rows []Object
	if err := Decode([]byte(text), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

const groups = `[
 {"id":"u08c7c907b56a02546469724a","tasks":{"n":10000,"at_least":true},"type":"delivery","state":"error","step":"payment-charge",
  "last":"2026-11-25T13:05:06.123456Z","example":"the card was refused by the bank of the customer: code 51, not enough money, ask again tomorrow"},
 {"id":"u18c7c907b56a02546469724b","tasks":{"n":4312},"type":"delivery","state":"undone","step":"","last":"2026-11-20T13:05:06Z","example":null}]`

var groupColumns = []string{"id", "tasks", "state", "type", "step", "~last", "example"}

// TestTableFitsATerminal: a row is a line at any width that it can be; what is copied into the next command is whole.
//
// covers: OP23
func TestTableFitsATerminal(t *testing.T) {
	rows := rowsOf(t, groups)
	for _, width := range []int{80, 100, 132} {
		var b bytes.Buffer
		Page{W: &b, Width: width, Now: now}.Table(groupColumns, rows)
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		want := 3
		if width == 80 {
			want = 4
			if !strings.Contains(b.String(), "(no room for LAST; -o csv shows all)") {
				t.Errorf("80 columns:\n%s", b.String())
			}
		}
		if len(lines) != want {
			t.Fatalf("%d columns: %d lines, want %d\n%s", width, len(lines), want, b.String())
		}
		at := strings.Index(lines[0], "LAST")
		for _, line := range lines {
			if w := ansi.StringWidth(line); w > width {
				t.Errorf("%d columns: a line of %d: %s", width, w, line)
			}
		}
		for i, want := range []string{"13:05:06Z", "2026-11-20"} {
			if at < 0 {
				break
			}
			if got := ansi.Cut(lines[i+1], at, at+len(want)); got != want {
				t.Errorf("%d columns: %q below LAST, want %q", width, got, want)
			}
		}
		for _, want := range []string{"u08c7c907b56a02546469724a", "≥ 10,000", "4,312", "error", "undone"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%d columns: %s is cut", width, want)
			}
		}
	}
	var b bytes.Buffer
	Page{W: &b, Width: 40, Now: now}.Table(groupColumns, rows)
	if !strings.Contains(b.String(), "EXAMPLE  the card was refused by the\n") || strings.Contains(b.String(), "…") {
		t.Errorf("too narrow for a row: want a block of lines\n%s", b.String())
	}
	b.Reset()
	Page{W: &b}.Table(groupColumns, rows)
	if !strings.Contains(b.String(), "ask again tomorrow") || !strings.Contains(b.String(), "2026-11-25T13:05:06Z") {
		t.Errorf("without a terminal nothing is cut\n%s", b.String())
	}
}

// TestColourIsNeverAlone: with colours the same words stand there.
func TestColourIsNeverAlone(t *testing.T) {
	var plain, coloured bytes.Buffer
	rows := rowsOf(t, groups)
	Page{W: &plain, Width: 100, Now: now}.Table(groupColumns, rows)
	Page{W: &coloured, Width: 100, Colour: true, Now: now}.Table(groupColumns, rows)
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(coloured.String(), "\x1b[31merror\x1b[0m") || ansi.Strip(coloured.String()) != plain.String() {
		t.Errorf("plain\n%s\ncoloured\n%q", plain.String(), coloured.String())
	}
	t.Setenv("NO_COLOR", "1")
	if On(wide{}).Colour {
		t.Error("NO_COLOR is set")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if p := On(wide{}); !p.Colour || p.Width != 120 {
		t.Errorf("%+v", p)
	}
	if p := On(&plain); p.Colour || p.Width != 0 {
		t.Errorf("a file: %+v", p)
	}
}

type wide struct{ io.Writer }

func (wide) TerminalWidth() int { return 120 }

// TestTextOfOthersMovesNoCursor: what an agent or a submitter wrote cannot change the terminal or the order of letters.
func TestTextOfOthersMovesNoCursor(t *testing.T) {
	var b bytes.Buffer
	row := Object{"error": "a\x1b[2Jb\nc\u202ed\x07", "id": "x"}
	Page{W: &b, Width: 80}.Table([]string{"id", "error"}, []Object{row})
	Page{W: &b, Width: 80}.Fields([]string{"id", "error"}, row)
	Page{W: &b, Width: 80}.Line([]string{"id", "error"}, row)
	if strings.ContainsAny(b.String(), "\x1b\x07\u202e") || strings.Count(b.String(), "\n") != 5 {
		t.Errorf("%q", b.String())
	}
}

// TestForPrograms: JSON is as it came, YAML and CSV say the same.
func TestForPrograms(t *testing.T) {
	const body = `{"z":1,"a":9007199254740993,"list":[{"id":"x,\"y\"","n":100000000000000000001,"tail":0.1000000000000000055511151231257827,"text":"1e400","e":1e400}],"none":{},"no":[],"null":null}`
	var b bytes.Buffer
	if err := Raw(&b, JSON, []byte(body+"\n")); err != nil || b.String() != body+"\n" {
		t.Errorf("%v %s", err, b.String())
	}
	b.Reset()
	if err := Raw(&b, YAML, []byte(body)); err != nil {
		t.Fatal(err)
	}
	if want := "z: 1\na: 9007199254740993\nlist:\n- id: x,\"y\"\n  \"n\": 100000000000000000001\n  tail: 0.1000000000000000055511151231257827\n  text: \"1e400\"\n  e: 1e400\nnone: {}\n\"no\": []\n\"null\": null\n"; b.String() != want {
		t.Errorf("order or numbers are not kept:\n%s\nwant\n%s", b.String(), want)
	}
	var back any
	if err := yaml.Unmarshal(b.Bytes(), &back); err != nil {
		t.Error(err)
	}
	b.Reset()
	if err := Records(&b, groupColumns, rowsOf(t, groups)); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(records) != 3 {
		t.Fatal(records, err)
	}
	if fmt.Sprint(records[0]) != fmt.Sprint(Paths(groupColumns)) || records[1][1] != ">=10000" || records[2][1] != "4312" || records[1][5] != "2026-11-25T13:05:06.123456Z" || records[2][6] != "" {
		t.Errorf("%q", records)
	}
	if err := Decode([]byte(`{`), &back); err == nil {
		t.Error("half an answer")
	}
}

// TestValues: each kind of value as people read it.
func TestValues(t *testing.T) {
	for in, want := range map[string]string{
		`null`: "-", `""`: "-", `"a"`: "a", `true`: "yes", `false`: "no", `12345678`: "12345678", `0.014657982142857143`: "0.015", `12.5`: "12.5", `3.0`: "3", `1e-9`: "0", `1e21`: "1000000000000000000000", `{"n":1234567}`: "1,234,567", `{"n":100,"at_least":true}`: "≥ 100",
		`["a","b"]`: "a, b", `[]`: "-", `"0001-01-01T00:00:00Z"`: "-", `"2026-11-25T13:05:06.9+01:00"`: "2026-11-25T12:05:06Z", `{"k":"v"}`: `{"k":"v"}`,
	} {
		var v any
		d := json.NewDecoder(strings.NewReader(in))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if got := Value(v); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	for path, want := range map[string]string{"tally.failed_again": "FAILED AGAIN", "created_at": "CREATED", "id": "ID", "at": "AT"} {
		if got := Head(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestOptionalColumnsGoBeforeMeaning: a column is left out before others are cut to a few letters; times are whole.
func TestOptionalColumnsGoBeforeMeaning(t *testing.T) {
	rows := rowsOf(t, `[{"number":2,"at":"2026-11-25T13:05:06Z","until":"2026-11-25T13:06:07Z","actor":"ann","role":"admin","via":"http","action":"token.create",
		"target":"token/sztdrvpmksggxrgd","outcome":"refused: needs the role admin","reason":"the drones are grounded by weather"}]`)
	columns := []string{"number", "at", "until", "actor", "~role", "~via", "action", "target", "outcome", "reason"}
	for width, want := range map[int]struct{ line, note string }{
		200: {"2       13:05:06Z  13:06:07Z  ann    admin  http  token.create  token/sztdrvpmksggxrgd  refused: needs the role admin  the drones are grounded by weather", ""},
		110: {"2       13:05:06Z  13:06:07Z  ann    admin  token.create  token/sztdrvpmk…  refused: needs …  the drones are …", "(no room for VIA; -o csv shows all)"},
		96:  {"2       13:05:06Z  13:06:07Z  ann    token.create  token/sztdrv…  refused: need…  the drones ar…", "(no room for VIA, ROLE; -o csv shows all)"},
	} {
		var b bytes.Buffer
		Page{W: &b, Width: width, Now: now}.Table(columns, rows)
		lines := strings.Split(b.String(), "\n")
		if lines[1] != want.line || lines[2] != want.note || ansi.StringWidth(lines[1]) > width {
			t.Errorf("%d columns:\n%s\nwant\n%s\n%s", width, b.String(), want.line, want.note)
		}
	}
}

// TestNoFormulaAndNoEscape: text of others is neither a formula in CSV nor an escape on a terminal, in whatever format, as
// a value or as a name; JSON and YAML keep the value.
//
// covers: P17
func TestNoFormulaAndNoEscape(t *testing.T) {
	const evil = "\x1b[31mred\x07 \u009b2J \u202eback\x7f"
	text, err := json.Marshal(map[string]any{evil: []any{evil, "=1+1", "two\nlines", "é"}})
	if err != nil {
		t.Fatal(err)
	}
	var was map[string]any
	if err := json.Unmarshal(text, &was); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{JSON, YAML, CSV} {
		var b bytes.Buffer
		if format == CSV {
			err = Records(&b, []string{"a", "b"}, []Object{{"a": evil, "b": "=1+1"}, {"a": map[string]any{"x": evil}}})
			if !strings.Contains(b.String(), ",'=1+1") {
				t.Errorf("a formula: %s", b.String())
			}
		} else {
			err = Raw(&b, format, text)
		}
		if err != nil || strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && sheet.Moves(r) }) {
			t.Errorf("%s: %v: %q", format, err, b.String())
		}
		var is map[string]any
		switch format {
		case JSON:
			err = json.Unmarshal(b.Bytes(), &is)
		case YAML:
			err = yaml.Unmarshal(b.Bytes(), &is)
		case CSV:
			continue
		}
		if err != nil || !reflect.DeepEqual(is, was) {
			t.Errorf("%s: %v: %q, want %q", format, err, is, was)
		}
	}
}

// TestCutCounts: a count that was cut says so, also within a step, and one of nothing is none.
//
// covers: O11
func TestCutCounts(t *testing.T) {
	count := func(n string, cut bool) Object { return Object{"n": json.Number(n), "at_least": cut} }
	for _, c := range []struct {
		of   Object
		want string
	}{
		{count("4312", false), "4,312"}, {count("10000", true), "≥ 10,000"}, {count("0", false), "0"}, {count("0", true), "not counted"},
		{Object{"type": "order", "step": "pay", "tasks": json.Number("10000"), "at_least": true}, "order/pay: ≥ 10,000"},
		{Object{"type": "order", "step": "pay", "tasks": json.Number("7")}, "order/pay: 7"},
	} {
		if got := Value(c.of); got != c.want {
			t.Errorf("%v is shown as %q, want %q", c.of, got, c.want)
		}
	}
}

// TestVisible: whatever is written, however it is cut into writes, moves no cursor and turns no direction; JSON has the same
// value, and bytes that are no text and colours are as they were.
//
// covers: O9
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"gpj.\u202eexe\u2066\x1b[2J\x07\u009b": `gpj.\u202eexe\u2066\u001b[2J\u0007\u009b`,
		"\x1b[31merror\x1b[0m\ta\r\n":          "\x1b[31merror\x1b[0m\ta\r\n",
		"pay \x1b[8m1,000,000":                 "pay \\u001b[8m1,000,000", // concealed
		"\x1b[30;40mx\x1b[m":                   "\\u001b[30;40mx\\u001b[m",
		"é 日本 👩‍👩‍👧 עברית \xff\xfe\xe6\x97":    "é 日本 👩‍👩‍👧 עברית \xff\xfe\xe6\x97",
		`{"a":"` + "\u202e" + `"}`:             `{"a":"\u202e"}`,
	} {
		for cut := range 5 {
			var b bytes.Buffer
			v := &Visible{To: &b}
			for rest := text; rest != ""; {
				n := len(rest)
				if cut > 0 && !strings.Contains(text, "\x1b[31m") { // a colour is written at once
					n = min(n, cut)
				}
				if _, err := io.WriteString(v, rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			if b.String() != want {
				t.Errorf("%q in writes of %d: %q, want %q", text, cut, b.String(), want)
			}
		}
	}
	if w := On(&Visible{To: wide{}}).Width; w != 120 {
		t.Errorf("a terminal of 120 columns has %d", w)
	}
}

package sheet

import (
	"bytes"
	"encoding/csv"
	"testing"
)

// TestCells: what is a formula anywhere is none here, numbers stay numbers, and no control character is left.
//
// covers: P17
func TestCells(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain": "plain", "-5": "-5", "-1.5e3": "-1.5e3", "+7": "+7", "a=b": "a=b", "two\nlines\tand a tab": "two\nlines\tand a tab", "é 日本": "é 日本",
		`=HYPERLINK("http://x")`: `'=HYPERLINK("http://x")`, "+1+1": "'+1+1", "-1+cmd|' /C calc'!A0": "'-1+cmd|' /C calc'!A0", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t'=1", "\r=1": "'\r'=1", " =1": "' =1", "\n=1": "\n'=1",
		"tenant=x;=1+1": "tenant=x;'=1+1", `a; "@SUM(A1)`: `a; "'@SUM(A1)`, "two\n-1+1": "two\n'-1+1", "a;b": "a;b", "a\u061cb": "a\uFFFDb", "＝1+1": "'＝1+1",
		"\x1b[31mred\x07": "\uFFFD[31mred\uFFFD", "\u009b31m": "\uFFFD31m", "\x7f": "\uFFFD", "a\u202eb": "a\uFFFDb", "\x00=1": "\uFFFD=1",
	} {
		if got := Cell(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	line := []string{"=1", `a"b`, "c,d"}
	if err := w.Write(line); err != nil || line[0] != "=1" {
		t.Error(err, line)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	if got, err := csv.NewReader(&b).Read(); err != nil || got[0] != "'=1" || got[1] != `a"b` || got[2] != "c,d" {
		t.Error(got, err)
	}
}

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
		if got := safeCell(text); got != want {
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

// TestHTML: in the text of a page what turns the direction of writing can be seen, and what is written from right to left
// does not reach what stands beside it; attributes, fields and all other pages are as they were.
//
// covers: O9
func TestHTML(t *testing.T) {
	for page, want := range map[string]string{
		"":                                 "",
		"<p title=\"a&gt;b\">x < 3</p>":    "<p title=\"a&gt;b\">x < 3</p>",
		"<td>gpj.\u202eexe\x1b[2J</td>":    `<td>gpj.\u202eexe\u001b[2J</td>`,
		"<input value=\"a\u202eb\">\u2066": "<input value=\"a\u202eb\">\\u2066",
		"<p>“נדחה: 12 (ab) כן”, 3 more</p>":                                                          "<p>“<bdi>נדחה: 12 (ab) כן</bdi>”, 3 more</p>",
		"<pre>{&#34;a&#34;: &#34;אב&#34;, &#34;b&#34;: 1,\n&#34;c&#34;: &#34;גד &amp; ה&#34;}</pre>": "<pre>{&#34;a&#34;: &#34;<bdi>אב</bdi>&#34;, &#34;b&#34;: 1,\n&#34;c&#34;: &#34;<bdi>גד &amp; ה</bdi>&#34;}</pre>",
		"<textarea name=\"x\">{אב}\u202e</textarea><b>א</b>":                                         "<textarea name=\"x\">{אב}\\u202e</textarea><b><bdi>א</bdi></b>",
		"<svg><text>א</text></svg>א":                                                                 "<svg><text>א</text></svg><bdi>א</bdi>",
		"<p>&#39;אב&#39; &lt;b&gt;</p>":                                                              "<p>&#39;<bdi>אב</bdi>&#39; &lt;b&gt;</p>",
		"a\tb\r\n<p>👩‍👩‍👧 naïve 統合</p>":                                                              "a\tb\r\n<p>👩‍👩‍👧 naïve 統合</p>",
	} {
		if got := HTML(page); got != want {
			t.Errorf("%q:\n%q, want\n%q", page, got, want)
		}
	}
}

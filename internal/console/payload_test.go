package console

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPayload: JSON is shown as it came.
//
// covers: OP18
func TestPayload(t *testing.T) {
	text, hidden, note := layOut([]byte(`{"z":9007199254740993,"a":1.10,"e":1E400,"u":"\u00e9é","api_token":"abc","nested":{"Password":{"x":[1,2]},"b":["q"]},"last_secret":[1],"h":"Bearer abcdefghijkl"}`))
	want := `{
  "z": 9007199254740993,
  "a": 1.10,
  "e": 1E400,
  "u": "\u00e9é",
  "api_token": "••••••",
  "nested": {
    "Password": "••••••",
    "b": [
      "q"
    ]
  },
  "last_secret": "••••••",
  "h": "••••••"
}`
	if text != want || hidden != 4 || note != "" {
		t.Errorf("hidden %d, note %q:\n%s", hidden, note, text)
	}
	if text, _, note := layOut([]byte("plain words")); text != "plain words" || note == "" {
		t.Errorf("no JSON: %q, %q", text, note)
	}
	big := documentOf("x", "Input", []byte(`"`+strings.Repeat("y", 1<<20)+`"`), "/alone")
	if big.Remote != "/alone" || big.Text != "" {
		t.Errorf("1 MB is in the page: %d bytes", len(big.Text))
	}
	if d := documentOf("x", "Input", []byte(`"`+strings.Repeat("y", 3000)+`"`), "/alone"); !d.Fold || d.Remote != "" {
		t.Errorf("3 kB: folded %v, remote %q", d.Fold, d.Remote)
	}
}

// TestMaskKeepsAllElse: whatever the document, laying it out changes nothing but secrets, and leaves valid JSON.
//
// covers: OP18
func TestMaskKeepsAllElse(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "b \"quoted\": ", "secret_x", "n", "password", "é\n"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Int64(), func(n int64) any { return n }), rapid.Map(rapid.StringMatching(`[a-z"\\{}\[\]:, ]{0,8}`), func(s string) any { return s }))
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf, rapid.Map(rapid.MapOfN(key, value(depth-1), 0, 4), func(m map[string]any) any { return m }), rapid.Map(rapid.SliceOfN(value(depth-1), 0, 4), func(s []any) any { return s }))
	}
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var flat bytes.Buffer
		if err := json.Indent(&flat, raw, "", ""); err != nil {
			t.Fatal(err)
		}
		text, _, _ := layOut(raw)
		var back, hidden any
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatalf("%s became no JSON:\n%s", raw, text)
		}
		if err := json.Unmarshal(raw, &hidden); err != nil {
			t.Fatal(err)
		}
		if same, _ := mask(flat.String()); strings.Join(strings.Fields(same), "") != strings.Join(strings.Fields(text), "") {
			t.Fatalf("%s without indentation became\n%s, want\n%s", raw, same, text)
		}
		got, _ := json.Marshal(back)
		want, _ := json.Marshal(hide(hidden))
		if string(got) != string(want) {
			t.Fatalf("%s became\n%s, want\n%s", raw, got, want)
		}
	})
}

// hide is what mask does, by another way.
func hide(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if secretKey.MatchString(k) {
				v[k] = masked
			} else {
				v[k] = hide(v[k])
			}
		}
	case []any:
		for i := range v {
			v[i] = hide(v[i])
		}
	}
	return v
}

// TestDeepDocumentIsNoLongPage: what nests as deep as decoders take, and was stored before there was a limit, is laid out in
// little more than it has.
//
// covers: P2
func TestDeepDocumentIsNoLongPage(t *testing.T) {
	raw := []byte(`{"password":` + strings.Repeat("[", 9_999) + `"hunter2"` + strings.Repeat("]", 9_999) + `,"other":` + strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999) + "}")
	d := documentOf("input", "Input", raw, "/alone")
	if len(d.Text) > 10*len(raw) || d.Masked != 1 || strings.Contains(d.Text, "hunter2") {
		t.Errorf("%d bytes of %d, %d hidden", len(d.Text), len(raw), d.Masked)
	}
	if n := len(indented(raw)); n > 10*len(raw) {
		t.Errorf("to edit: %d bytes of %d", n, len(raw))
	}
}

func TestCheckJSON(t *testing.T) {
	err := checkJSON("The input", "{\n  \"a\": 1,\n  \"b\" 2\n}", 100)
	if err == nil || !strings.Contains(err.Error(), "line 3, column 7") {
		t.Errorf("error: %v", err)
	}
	if err := checkJSON("The input", `{"a":1}`, 3); err == nil {
		t.Error("7 bytes pass a limit of 3")
	}
}

// TestDiff: both sides are kept line by line, changes stand side by side, and equal stretches are left out.
//
// covers: OP11
func TestDiff(t *testing.T) {
	lines := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = strings.Repeat("x", i+1)
		}
		return all
	}
	a, b := lines(20), lines(20)
	b[10] = "changed"
	b = append(b, "added")
	rows := diffLines(strings.Join(a, "\n"), strings.Join(b, "\n"))
	var kinds []string
	for _, r := range rows {
		kinds = append(kinds, r.Kind)
	}
	if got := strings.Join(kinds, " "); got != "skip same same same changed same same same skip same same same added" {
		t.Errorf("rows: %s", got)
	}
	if r := rows[4]; r.Old != a[10] || r.New != "changed" || r.OldNo != 11 || r.NewNo != 11 {
		t.Errorf("changed row: %+v", r)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) []string {
			return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 1, 12).Draw(t, "lines")
		})
		a, b := text.Draw(t, "old"), text.Draw(t, "new")
		var olds, news []string
		for _, r := range sideBySide(strings.Join(a, "\n")+"\n", strings.Join(b, "\n")+"\n") {
			if r.OldNo > 0 {
				olds = append(olds, r.Old)
			}
			if r.NewNo > 0 {
				news = append(news, r.New)
			}
		}
		if strings.Join(olds, "\n") != strings.Join(a, "\n") || strings.Join(news, "\n") != strings.Join(b, "\n") {
			t.Fatalf("%q and %q became %q and %q", a, b, olds, news)
		}
	})
}

package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// A text is cut at every length, and no rune of it is.
func TestCutText(t *testing.T) {
	const text = "aß日🙂b日本語🙂🙂"
	for most := -1; most <= len(text)+1; most++ {
		got := core.CutText(text, most)
		if !utf8.ValidString(got) || !strings.HasPrefix(text, got) || len(got) > max(0, most) {
			t.Errorf("cut to %d bytes: %q", most, got)
		}
		if lost := min(most, len(text)) - len(got); lost > 3 {
			t.Errorf("cut to %d bytes: %q, %d too few", most, got, lost)
		}
		if short := core.ShortText(text, most); (short == text) != (most >= len(text)) || short != text && short != got+"…" {
			t.Errorf("shortened to %d bytes: %q", most, short)
		}
	}
	// What is no UTF-8 is cut too, and not to nothing.
	if got := core.CutText(strings.Repeat("\x80", 100), 50); len(got) != 50 {
		t.Errorf("50 of 100 strange bytes are %d", len(got))
	}
}

// A value is quoted whole up to 64 bytes, and cut at a character beyond.
func TestQuoteShort(t *testing.T) {
	for value, want := range map[string]string{
		"":                                   `""`,
		"a\nb":                               `"a\nb"`,
		strings.Repeat("x", 64):              `"` + strings.Repeat("x", 64) + `"`,
		strings.Repeat("x", 65):              `"` + strings.Repeat("x", 64) + `"…`,
		strings.Repeat("x", 63) + "é":        `"` + strings.Repeat("x", 63) + `"…`,
		strings.Repeat("é", 1<<20):           `"` + strings.Repeat("é", 32) + `"…`,
		strings.Repeat("x", 62) + "\xff\xff": `"` + strings.Repeat("x", 62) + `\xff\xff"`,
	} {
		if got := core.QuoteShort(value); got != want {
			t.Errorf("%.70q: got %s, want %s", value, got, want)
		}
	}
}

// A name that is refused is told by its first character outside the alphabet, as it was
// written, and what to do about an id.
//
// covers: C13
func TestErrorsAreNamedByRune(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"日本", `id "日本": character 1 is '日', want A–Z a–z 0–9 _ -`},
		{"a.b", `id "a.b": character 2 is '.', want`},
		{"a\xffb", `byte 2 is 0xff, which is not UTF-8`},
		{"a\uFFFD", `character 2 is '` + "\uFFFD" + `'`},
		{"a\xef", `byte 2 is 0xef, which is not UTF-8`},
		{"", `id "" has 0 bytes, want 1 to 64 of A–Z a–z 0–9 _ -`},
		{strings.Repeat("日", 30), "日\"… has 90 bytes, want 1 to 64"},
		{strings.Repeat("x", 65), "has 65 bytes, want 1 to 64"},
	} {
		err := core.CheckName("id", test.name)
		if !errors.Is(err, core.ErrName) || !strings.Contains(err.Error(), test.want) || !utf8.ValidString(err.Error()) {
			t.Errorf("%q: %v, want %s", test.name, err, test.want)
			continue
		}
		if hinted := strings.Contains(err.Error(), "duly.ID"); hinted != (test.name != "") {
			t.Errorf("%q: %v", test.name, err)
		}
	}
	if err := core.CheckName("step", "日"); err == nil || strings.Contains(err.Error(), "duly.ID") {
		t.Errorf("a step: %v", err)
	}
	if err := core.CheckAgent("pay.日本"); err == nil || !strings.Contains(err.Error(), "'日'") {
		t.Errorf("an agent: %v", err)
	}
}

func TestParseCompleteBy(t *testing.T) {
	now := core.InstantOf(time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC))
	for value, want := range map[string]core.Instant{
		"": 0, "10s": now.Add(10 * time.Second), "1ms": now.Add(time.Millisecond), "2026-01-02T03:04:06+00:00": now - 678 + 1e6, "2026-01-02T04:04:06.5+01:00": now - 678 + 1.5e6,
		"8760h": now.Add(core.DurationMax),
	} {
		if got, err := core.ParseCompleteBy(value, now, now); err != nil || got != want {
			t.Errorf("%q: %v, %v", value, got.Time(), err)
		}
	}
	for value, want := range map[string]error{
		"0s": core.ErrCompleteByPast, "-1s": core.ErrCompleteByPast, "2026-01-02T03:04:05Z": core.ErrCompleteByPast, "0000-01-01T00:00:00Z": core.ErrCompleteByPast,
		"-2562047h47m16.854s": core.ErrCompleteByPast,
		"soon":                core.ErrCompleteByForm, "5": core.ErrCompleteByForm, " 5s": core.ErrCompleteByForm, strings.Repeat("日", 1000): core.ErrCompleteByForm,
		"8761h": core.ErrCompleteByFar, "2562047h47m16.854s": core.ErrCompleteByFar, "2027-01-03T00:00:00Z": core.ErrCompleteByFar, "9999-12-31T23:59:59Z": core.ErrCompleteByFar,
	} {
		got, err := core.ParseCompleteBy(value, now, now)
		if !errors.Is(err, want) || !errors.Is(err, core.ErrCompleteBy) || got != 0 || len(err.Error()) > 200 || !utf8.ValidString(err.Error()) {
			t.Errorf("%q: %v, %v", value, got.Time(), err)
		}
	}
}

func TestCleanTrace(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, test := range []struct {
		trace string
		ok    bool
	}{
		{"", true}, {"00-" + id + "-" + parent + "-01", true}, {"01-" + id + "-" + parent + "-01", true},
		{"01-" + id + "-" + parent + "-01-more", false}, {"01-" + id + "-" + parent + "-01-abc", true},
		{"00-" + id + "-" + parent + "-01-abc", false}, {"01-" + id + "-" + parent + "-01abc", false},
		{"ff-" + id + "-" + parent + "-01", false}, {"00-" + strings.ToUpper(id) + "-" + parent + "-01", false},
		{"00-" + strings.Repeat("0", 32) + "-" + parent + "-01", false}, {"00-" + id + "-" + strings.Repeat("0", 16) + "-01", false},
		{"00-" + id + "-" + parent + "-0", false}, {"00_" + id + "-" + parent + "-01", false}, {"00-" + id + "-" + parent + "-0\x00", false},
		{"01-" + id + "-" + parent + "-01-" + strings.Repeat("a", 72), true}, {"01-" + id + "-" + parent + "-01-" + strings.Repeat("a", 73), false},
		{strings.Repeat("0", 1<<20), false}, {"00-1-2-01", false},
	} {
		want := ""
		if test.ok {
			want = test.trace
		}
		if got := core.CleanTrace(test.trace); got != want {
			t.Errorf("trace %.140q: %q", test.trace, got)
		}
	}
}

package say

import (
	"testing"
	"time"
)

// TestRounded: a duration is short to read, and what has a twentieth to spare is enough as it is read.
func TestRounded(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 5300 * time.Microsecond: "5ms", 950 * time.Millisecond: "950ms", 2048 * time.Millisecond: "2s", 9667 * time.Millisecond: "9.7s",
		12345 * time.Millisecond: "12.3s", 754 * time.Second: "12m34s", 100*time.Minute + 31*time.Second: "1h41m0s",
	} {
		if got := Rounded(d).String(); got != want {
			t.Errorf("%v is read as %s, want %s", d, got, want)
		}
	}
	for d := 10 * time.Millisecond; d < 24*time.Hour; d += d/97 + 1 {
		if Rounded(d*21/20) < d {
			t.Fatalf("a twentieth more than %v is read as %v", d, Rounded(d*21/20))
		}
	}
}

// TestOf: values stand where their names are, nouns and verbs agree with numbers, and what a value holds is not read as a
// template.
//
// covers: O10
func TestOf(t *testing.T) {
	for _, test := range []struct {
		id     string
		values []any
		want   string
	}{
		{"count.tasks", []any{"n", 1}, "1 task"},
		{"count.tasks", []any{"n", int64(1249)}, "1,249 tasks"},
		{"count.tasks", []any{"n", "≥ 10,000"}, "≥ 10,000 tasks"},
		{"books.differ", []any{"n", 1, "of", 12, "at", "12:00"}, "Books not closed at 12:00: 1 of 12 effects does not agree with the journal."},
		{"books.without", []any{"n", 2}, "2 agents do not list effects, so nothing there is compared."},
		{"trail.stands", []any{"n", 1}, "What 1 step did is still in place."},
		{"act.none", []any{"action", "{n:task}"}, "There is no action {n:task}."},
		{"act.none", nil, "There is no action {action}."},
		{"no.such", []any{"n", 1}, "no.such"},
	} {
		if got := Of(test.id, test.values...); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.id, test.values, got, test.want)
		}
	}
	for n, want := range map[int64]string{-1080: "−1,080 lines", 0: "0 lines", 1: "1 line", 1000: "1,000 lines"} {
		if got := Count(n, "line"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package near

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"after", "aftr", 1}, {"Berlin", "Berlni", 2}, {"kind", "king", 1}, {"a", "a", 0}} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != c.want {
			t.Errorf("%q and %q are %d apart, want %d", c.a, c.b, got, c.want)
		}
	}
}

// A name that is not much longer than what was meant is near; a short one is near to nothing else.
func TestNearest(t *testing.T) {
	known := []string{"input", "results", "null", "attempts_max", "undo_patience", "undo_attempts_max"}
	for name, want := range map[string]string{"inptu": "input", "Result": "results", "nul": "null", "it": "", "foo": "", "inputoutput": "", "attempts": "attempts_max", "un": "", "undo": ""} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q is near %q, want %q", name, got, want)
		}
	}
	if got := Nearest("x", nil); got != "" {
		t.Errorf("nothing is known, and %q is near", got)
	}
}

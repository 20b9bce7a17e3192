package schema

import (
	"errors"
	"testing"

	"duly.dev/duly/internal/core"
)

// FuzzPositions: a cursor that is taken is one that a page told; nothing else goes
// near the database.
func FuzzPositions(f *testing.F) {
	for _, p := range []positions{{1, 2, 3}, {0, 1 << 40, 0}, {1 << 62, 1, 1}, {0, 0, 1}} {
		f.Add(p.String())
	}
	for _, s := range []string{"", "A", "AQ", "AQEC", "AQECAwQ", "AgECAw", "AQECAw==", "AQECAw\n", "1.2.3;DROP TABLE tasks", "AQECgAM", "AQAAAA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const partitions = 3
		p, err := parsePositions(s, partitions)
		if err != nil {
			if !errors.Is(err, core.ErrCursor) {
				t.Fatalf("%q: %v does not wrap ErrCursor", s, err)
			}
			return
		}
		if p.String() != s || len(p) != partitions {
			t.Fatalf("%q became %+v", s, p)
		}
		for _, n := range p {
			if n < 0 || n > 1<<62 {
				t.Fatalf("%q became %+v", s, p)
			}
		}
	})
}

package schema

import (
	"errors"
	"testing"

	"duly.dev/duly/internal/core"
)

// FuzzPlace: a cursor that is taken is one that a page told; nothing else goes
// near the database.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{"1767323045000678.3.17", "0.0.0", "1.2", "1.2.3.4", "-1.2.3", "+1.2.3", "01.2.3", "1.2.3 ", "1.2.3;DROP TABLE tasks",
		"99999999999999999999.1.1", "9223372036854775807.1.1", "253402300799999999.1.1", "253402300800000000.1.1", "a.b.c", ".."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePlace(s)
		if err != nil {
			if !errors.Is(err, core.ErrCursor) {
				t.Fatalf("%q: %v does not wrap ErrCursor", s, err)
			}
			return
		}
		if p.String() != s || p.at < 0 || p.at > placeTimeMax || p.partition < 0 || p.number < 0 {
			t.Fatalf("%q became %+v", s, p)
		}
	})
}

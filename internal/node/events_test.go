package node

import (
	"testing"

	"duly.dev/duly/internal/natsbus"
)

// TestEventPlace: an id that no event has is refused, whatever it is.
func TestEventPlace(t *testing.T) {
	for id, want := range map[string]natsbus.EventPlace{"": {}, "17.0": {Seq: 17}, "1.511": {Seq: 1, Index: 511}} {
		if got, bad := eventPlace(id); bad != nil || got != want {
			t.Errorf("%q: %v %v", id, got, bad)
		}
	}
	for _, id := range []string{"17", "0.0", "-1.0", "1.-1", "x.0", "1.x", ".", "99999999999999999999.0", "1.99999999999"} {
		if got, bad := eventPlace(id); bad == nil || bad.Code != 400 {
			t.Errorf("%q: %v", id, got)
		}
	}
}

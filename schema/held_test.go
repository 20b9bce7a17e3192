package schema_test

import (
	"testing"

	"duly.dev/duly/schema"
)

// TestHeldTrouble: what is more than usual is a trouble, and nothing else.
//
// covers: L14
func TestHeldTrouble(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		held schema.Held
		want bool
	}{
		{schema.Held{}, false}, {schema.Held{WAL: 100, WALMost: 100}, false}, {schema.Held{WAL: 101, WALMost: 100}, true},
		{schema.Held{Snapshot: schema.HeldFor}, false}, {schema.Held{Snapshot: schema.HeldFor + 1}, true},
	} {
		if err := tt.held.Trouble(); (err != nil) != tt.want {
			t.Errorf("%+v: %v", tt.held, err)
		}
	}
}

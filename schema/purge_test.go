package schema_test

import (
	"slices"
	"testing"

	"duly.dev/duly/schema"
)

// A family goes with its parent or not at all: where the parent is found to be at work again while the partition is held, the
// journals of its children, which its undo may need, stay.
//
// covers: L8
func TestFamilyStaysWithItsParent(t *testing.T) {
	old := schema.Old{Details: []int64{1, 5}, Family: []schema.Kin{{Number: 2, Of: 1}, {Number: 3, Of: 1}, {Number: 6, Of: 5}}}
	for _, x := range []struct{ old, goes []int64 }{{[]int64{1, 5}, []int64{1, 2, 3, 5, 6}}, {[]int64{5}, []int64{5, 6}}, {nil, nil}} {
		got := old.Goes(x.old)
		if slices.Sort(got); !slices.Equal(got, x.goes) {
			t.Errorf("of %v there go %v, want %v", x.old, got, x.goes)
		}
	}
}

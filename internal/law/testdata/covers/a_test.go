package a

import "testing"

// TestOne is one.
//
// covers: A1
func TestOne(*testing.T) {}

// covers: A1, B2
// covers: Z9
// covers: B2 in there
// covers: B2 in gone
func TestTwo(t *testing.T) {
	t.Run("there", func(*testing.T) {})
}

// covers: A2
var nothing = 1

package a

import "testing"

// TestOne is one.
//
// covers: A1
func TestOne(*testing.T) {}

// covers: A1, B2
// covers: Z9
func TestTwo(*testing.T) {}

// covers: A2
var nothing = 1

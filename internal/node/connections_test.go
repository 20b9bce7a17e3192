package node

import "testing"

// TestConnectionsFor: the bound follows the memory, between two others.
//
// covers: E26
func TestConnectionsFor(t *testing.T) {
	if few, some, many := connectionsFor(1<<20), connectionsFor(1<<30), connectionsFor(1<<40); few != connectionsLeast || some != 2048 || many != connectionsMost {
		t.Error(few, some, many)
	}
}

package core

import (
	"errors"
	"strings"
	"testing"
)

// A child's id is that of its parent, its step and more, joined by the mark; a client's has no mark.
func TestTaskID(t *testing.T) {
	for id, taken := range map[string]bool{
		"o-1": true, ChildID("o-1", "pay", 0, 0, false): true, ChildID(ChildID("o-1", "pay", 17, 3, true), "book", 0, 0, false): true,
		"": false, "~": false, "o-1~": false, "~pay": false, "o-1~~pay": false, "o 1~pay": false, "o-1~p.y": false,
		"o~" + strings.Repeat("s", NameBytesMax+1): false, strings.Repeat("s~", 127) + "s": true, strings.Repeat("s~", 128) + "s": false,
	} {
		err := CheckTaskID(id)
		if (err == nil) != taken || err != nil && !errors.Is(err, ErrName) {
			t.Errorf("id %q: %v", id, err)
		}
		if root := RootID(id); taken && CheckName("id", root) != nil {
			t.Errorf("id %q: its root is %q", id, root)
		}
	}
}

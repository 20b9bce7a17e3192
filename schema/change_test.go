package schema

import (
	"bytes"
	"testing"
)

// A range by afterPrefix has what begins with the prefix, and nothing else.
func TestAfterPrefix(t *testing.T) {
	for prefix, want := range map[string][]byte{
		"task/": []byte("task0"), "a\xff": []byte("b"), "a\xff\xff": []byte("b"), "\xff": nil, "": nil, "t\x00": []byte("t\x01"),
	} {
		if got := afterPrefix(prefix); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}

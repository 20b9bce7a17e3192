package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCompare: every subject handles every message once, and is in the table.
func TestCompare(t *testing.T) {
	var out strings.Builder
	if err := compare(t.Context(), &out, 500, 1, 2, 4); err != nil {
		t.Fatal(err)
	}
	for _, s := range subjects {
		if !strings.Contains(out.String(), s.name) {
			t.Errorf("%s is missing in:\n%s", s.name, out.String())
		}
	}
}

package ui

import (
	"testing"

	"go.uber.org/goleak"
)

// The library is there, and nothing calls it.
var _ = goleak.IgnoreCurrent

func TestMain(m *testing.M) { m.Run() }

func TestStart(t *testing.T) {
	go t.Log("gone") // breach: no TestMain of ui looks for leaked goroutines
}

package main

import (
	"os"
	"testing"

	"duly.dev/duly/bench/peers/harness/peertest"
)

func TestEveryStepIsInTheBooks(t *testing.T) {
	peertest.EveryStepIsInTheBooks(t, spec(), []string{"-steps", "1"}, []string{"-steps", "5"}, []string{"-steps", "5", "-single"})
}

func TestTheBooksFindWhatIsMissingOrTooMuch(t *testing.T) {
	peertest.TheBooksFindWhatIsMissingOrTooMuch(t, spec())
}

// TestAFailedStartLeavesNothing: the data of a run that never began.
func TestAFailedStartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	p := &peer{steps: 1, own: own{partitions: -1}}
	if err := p.Open(t.Context(), "postgres://127.0.0.1:1/none", nil); err == nil {
		t.Error("it runs with -1 partitions")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

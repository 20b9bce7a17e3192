package main

import (
	"testing"

	"duly.dev/duly/bench/peers/harness/peertest"
)

func TestEveryStepIsInTheBooks(t *testing.T) {
	peertest.EveryStepIsInTheBooks(t, spec(), []string{"-steps", "1"}, []string{"-steps", "5"})
}

func TestTheBooksFindWhatIsMissingOrTooMuch(t *testing.T) {
	peertest.TheBooksFindWhatIsMissingOrTooMuch(t, spec())
}

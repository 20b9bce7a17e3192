package main

import (
	"flag"
	"testing"

	"duly.dev/duly/bench/peers/harness"
	"duly.dev/duly/bench/peers/harness/peertest"
)

func TestEveryStepIsInTheBooks(t *testing.T) {
	peertest.EveryStepIsInTheBooks(t, spec(), []string{"-steps", "1"}, []string{"-steps", "5"}, []string{"-steps", "5", "-shape", resumable})
}

func TestAnUnknownShapeIsRefused(t *testing.T) {
	s := spec()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	s.Flags(flags)
	if err := flags.Parse([]string{"-shape", "ring"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.New(harness.Settings{}); err == nil {
		t.Error("the shape ring is accepted")
	}
}

func TestTheBooksFindWhatIsMissingOrTooMuch(t *testing.T) {
	peertest.TheBooksFindWhatIsMissingOrTooMuch(t, spec())
}

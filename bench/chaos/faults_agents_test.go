package main

import (
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// Calls of an open breaker are told from those of a trial, and from those that left before all nodes knew.
func TestOpenSpans(t *testing.T) {
	at := func(ms int) time.Time {
		return time.UnixMilli(1_800_000_000_000).Add(time.Duration(ms) * time.Millisecond)
	}
	row := func(state core.BreakerState, since, until int) *core.Breaker {
		return &core.Breaker{State: state, Since: core.InstantOf(at(since)), Until: core.InstantOf(at(until))}
	}
	var s openSpans
	for _, b := range []*core.Breaker{{}, row(core.BreakerOpen, 0, 5000), row(core.BreakerOpen, 0, 5000), row(core.BreakerTrial, 5100, 0), row(core.BreakerOpen, 5200, 15200), row(core.BreakerClosed, 15300, 0)} {
		s.note(b)
	}
	if len(s) != 2 || !s[0].until.Equal(at(5000)) || !s[1].since.Equal(at(5200)) {
		t.Fatalf("%v", s)
	}
	for _, c := range []struct {
		began       int
		open, trial int
	}{
		{-10, 0, 0}, {999, 0, 0}, {1000, 1, 0}, {4999, 1, 0}, {5000, 0, 1}, {5300, 0, 1}, {6199, 0, 1}, {6200, 1, 0}, {9999, 1, 0}, {10000, 0, 0},
	} {
		g := &gauge{began: []time.Time{at(c.began)}}
		if open, trial := s.calls(g, at(10_000)); open != c.open || trial != c.trial {
			t.Errorf("a call at %d: %d while open, %d of a trial", c.began, open, trial)
		}
	}
	if s.trials(at(4000)) != 0 || s.trials(at(10_000)) != 1 || s.trials(at(20_000)) != 2 {
		t.Error("trials are not counted as they were")
	}
	if _, trial := s.calls(&gauge{began: []time.Time{at(5900)}}, at(5500)); trial != 0 {
		t.Error("a call after the service is back is one of a trial")
	}
	g := &gauge{began: []time.Time{at(15_200), at(16_000)}}
	if open, trial := s.calls(g, at(16_000)); open != 0 || trial != 1 {
		t.Errorf("in the last trial: %d while open, %d of a trial", open, trial)
	}
}

// What a bounded task fails at tells whether its agent was waited for.
func TestHeldBack(t *testing.T) {
	for _, c := range []struct {
		v    core.View
		held bool
	}{
		{core.View{State: core.StateProcessed}, false}, {core.View{State: core.StateUndone, FailedStep: "account"}, false},
		{core.View{State: core.StateError, FailedStep: boundedStep.String()}, true}, {core.View{State: core.StateUndone}, true},
	} {
		if got := heldBack(&c.v); got != c.held {
			t.Errorf("%s at %q: %v", c.v.State, c.v.FailedStep, got)
		}
	}
}

// The bounded tasks have a plan that can be stored, keys, and ids of their own.
func TestBounded(t *testing.T) {
	l, err := newLoad("nats://127.0.0.1:1", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if l.bound.Name() != boundedType {
		t.Errorf("plan %s", l.bound.Name())
	}
	keys := map[string]int{}
	for _, r := range l.bounded(6, 3) {
		keys[r.OwnerID]++
		if !strings.HasPrefix(r.DeliveryID, boundedType+"-") || core.CheckName("id", r.DeliveryID) != nil {
			t.Errorf("id %s", r.DeliveryID)
		}
	}
	if len(keys) != 3 || keys["owner-0"] != 2 {
		t.Errorf("keys %v", keys)
	}
}

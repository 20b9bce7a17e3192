package node

import (
	"maps"
	"testing"

	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/scheduler"
)

// TestKindsSnapshot: every count of kinds of step reaches the metric of its name.
func TestKindsSnapshot(t *testing.T) {
	got := kindsSnapshot(&scheduler.Kinds{Waits: 1, Signals: 2, SignalsRefused: 3, Born: 4, Skipped: 5, Expressions: 6, LateDos: 7, LateUndos: 8, Starts: 9, ChildEnds: [3]int64{10, 11, 12}, Probes: [3]int64{13, 14, 15}})
	if want := map[string]int64{"processed": 10, "undone": 11, "error": 12}; !maps.Equal(got.Ended, want) {
		t.Errorf("children ended: %v, want %v", got.Ended, want)
	}
	if want := map[string]int64{"done": 13, "absent": 14, "unknown": 15}; !maps.Equal(got.Probes, want) {
		t.Errorf("probes: %v, want %v", got.Probes, want)
	}
	got.Ended = nil
	want := telemetry.Kinds{Waits: 1, Signals: 2, SignalsRefused: 3, Born: 4, Skipped: 5, Expressions: 6, LateDos: 7, LateUndos: 8, Starts: 9}
	if got.Waits != want.Waits || got.Signals != want.Signals || got.SignalsRefused != want.SignalsRefused || got.Born != want.Born || got.Skipped != want.Skipped ||
		got.Expressions != want.Expressions || got.LateDos != want.LateDos || got.LateUndos != want.LateUndos || got.Starts != want.Starts {
		t.Errorf("%+v, want %+v", got, want)
	}
}

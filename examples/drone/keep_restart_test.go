package drone

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
)

// TestBooksOutliveTheProcess: after a restart the books of the services say what they said, the answer to a do that comes
// again is the same and makes nothing, and what was undone stays so.
//
// covers: O7
func TestBooksOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drone.books")
	var before []duly.Effect
	serials := map[string]uint32{}
	for round := range 3 {
		s, err := NewServices(ServiceOptions{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Keep(path); err != nil {
			t.Fatal(err)
		}
		if now := effectsOf(t, s); !slices.Equal(now, before) {
			t.Fatalf("round %d begins with %v, and ended with %v", round, now, before)
		}
		for i := range 6 {
			task := fmt.Sprintf("d-%d", i)
			in := Call{Task: task, Key: task + "/drone/0", Attempt: round + 1}
			serial, err := s.Service(StepDrone).Do(t.Context(), in)
			if undone := round > 0 && i < 2*round; undone != (err != nil) {
				t.Errorf("round %d, %s: %v", round, task, err)
			}
			if was := serials[task]; err == nil && was != 0 && was != serial {
				t.Errorf("%s was drone %d and is %d", task, was, serial)
			} else if err == nil {
				serials[task] = serial
			}
			if i/2 == round {
				if err := s.Service(StepDrone).Undo(t.Context(), in); err != nil {
					t.Error(err)
				}
			}
		}
		before = effectsOf(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(before) != 0 {
		t.Errorf("left are %v", before)
	}
}

// effectsOf are those of the service of drones, by key.
func effectsOf(t *testing.T, s *Services) []duly.Effect {
	t.Helper()
	all, _, err := s.Books().ByAgent()[agentDrone].Since(t.Context(), time.Time{}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b duly.Effect) int { return strings.Compare(a.Key, b.Key) })
	return all
}

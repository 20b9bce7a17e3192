package drone

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
)

// TestByAgent: the books tell every effect that stands once, page by page, by key, with how often it was made; what an undo
// took back is none.
//
// covers: T10
func TestByAgent(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1, Plants: []Plant{{PlantDouble, StepDrone, 1}}})
	for i := range 600 {
		play(t, all, fmt.Sprintf("task%d", i), i%2 == 1)
	}
	mustDo(t, all.Service(StepPackage), Call{Task: "task0", Key: "task0/package/1", Attempt: 1}) // of a second round
	for agent, want := range map[string]struct{ effects, times int }{agentPackage: {301, 1}, agentDrone: {300, 2}, agentDelivery: {300, 1}} {
		books := all.Books().ByAgent()[agent]
		seen := map[string]int{}
		for after, pages := "", 0; ; pages++ {
			page, next, err := books.Since(t.Context(), time.Time{}, after, 7)
			if err != nil || pages > 100 || len(page) > 7 {
				t.Fatalf("%s: %d effects on page %d, %v", agent, len(page), pages, err)
			}
			for _, e := range page {
				seen[e.Key] = e.Times
			}
			if after = next; next == "" {
				break
			}
		}
		if len(seen) != want.effects {
			t.Errorf("%s: %d effects, want %d", agent, len(seen), want.effects)
		}
		for key, times := range seen {
			if times != want.times {
				t.Errorf("%s: %s was made %d times, want %d", agent, key, times, want.times)
			}
		}
		name, _, _ := strings.Cut(agent, ".") // the step's
		asked := []string{"task0/" + name + "/0", "task1/" + name + "/0", "none/" + name + "/0"}
		found, err := books.Find(t.Context(), asked)
		if err != nil || !slices.Equal(found, []duly.Effect{{Key: asked[0], Times: want.times}}) {
			t.Errorf("%s: %+v, %v", agent, found, err)
		}
		if _, err := books.Find(t.Context(), []string{"nonsense"}); err == nil {
			t.Errorf("%s: found a key that is none", agent)
		}
		if _, _, err := books.Since(t.Context(), time.Time{}, "nonsense", 7); err == nil {
			t.Errorf("%s: a page after nonsense", agent)
		}
	}
}

// TestCheckBeside: what the comparison with the journal finds is left to it, and added.
//
// covers: T10
func TestCheckBeside(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1, Plants: []Plant{{PlantDouble, StepDrone, 1}, {PlantForget, StepTransport, 1}}})
	ids, outcomes := playMany(t, all)
	report := all.Books().CheckBeside(ids, outcomes)
	if report.Doubled != 0 || report.HalfDone != 5 || !strings.Contains(report.Examples[0].Why, "step transport never succeeded") {
		t.Errorf("beside: %+v", report)
	}
	report.Ghost(true, "task0", "made twice")
	if report.Doubled != 1 || report.Clean() {
		t.Errorf("with a ghost: %+v", report)
	}
}

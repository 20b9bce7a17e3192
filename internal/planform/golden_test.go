package planform

import (
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// full is a plan that says every field that there was before steps had kinds.
func full() core.Plan {
	return core.Plan{Name: "full", Version: 7, CompleteBy: 90 * time.Second, Grace: 3 * time.Second, InputMax: 4096, Steps: []core.Step{
		{Name: "look", Agent: "look.at.it", OnExhausted: core.PolicyWait, Pause: time.Minute},
		{Name: "do", Agent: "doer", After: []int{0}, Undoable: true, CompleteBy: 5 * time.Second, UndoCompleteBy: 6 * time.Second, AttemptsMax: 4, UndoAttemptsMax: 5,
			Backoff: 300 * time.Millisecond, BackoffCap: 9 * time.Second, OnExhausted: core.PolicyError, ResultMax: 1000, UndoPatience: time.Hour, UndoBackoffCap: time.Minute},
	}}
}

// Plans that were stored before steps had kinds keep their canonical bytes, and so their hash: another hash of one of
// these makes every node refuse the plan that it has stored itself.
func TestStoredPlansKeepTheirHash(t *testing.T) {
	for _, c := range []struct {
		plan core.Plan
		want string
	}{
		{order(), "e83abfad8305075f9625dd74bd2f5240bd263a811fab9092a32c8ddf56268767"},
		{full(), "3f63ccb7f05854a6268f022d0521127756f1ac5169a1c93306a284c47f3b8ea8"},
		{core.Plan{Name: "one", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a", Undoable: true}}}, "6b77b491d80bfcd120211bd8f4b1ee529bbeaf6b4589bb744dbb0358514366e9"},
	} {
		canonical, err := Canonical(&c.plan)
		if err != nil {
			t.Fatal(err)
		}
		if got := Hash(canonical); got != c.want {
			t.Errorf("plan %s: hash %s, want %s\n%s", c.plan.Name, got, c.want, canonical)
		}
	}
}

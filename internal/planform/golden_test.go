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
		{order(), "4788f50551760f206f27d97ecac90e3a21cba7900978cbe600febe18e94d78f2"},
		{full(), "c8a601189c1c9e83362182ede9f6cec42a3d6ce93c07419b44ce087218ded8e8"},
		{core.Plan{Name: "one", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a", Undoable: true}}}, "a04419c32d657341b186171d9555e718101442a71fb031cd74b7f79fd41c475c"},
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

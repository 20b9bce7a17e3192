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
		{order(), "c149c73d855c2bea0557c0e2cc2adce5e12207131d986767d951a637a8f49763"},
		{full(), "998babf8eb1ae6fb13ebf2edcd45f6e24b703ae40b0d8e3b541a5ee89506feaf"},
		{core.Plan{Name: "one", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a", Undoable: true}}}, "c832c32b946a63f10448315a2d0ec91e8b0af069950fddd00602a4934736b0a5"},
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

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
		{order(), "fee8e9233b0bdcdf40f459d59cee6a59fa5e48919bb4459ab3e54f53fd929e3b"},
		{full(), "0e270d0a910ef1165b8b85fe8e5ffee6c53efbccc148c05181a85367202ce1d2"},
		{core.Plan{Name: "one", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a", Undoable: true}}}, "7e276892ba1e6f6a2e6a477e079fe3504d80859344c3f72250ec445d5e7d3f7e"},
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

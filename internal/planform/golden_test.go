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
		{order(), "271993ad827b77838a43e5601d873008f4e951c343d29b9f383dd02e8d25739d"},
		{full(), "71375b723f27513e30f8addb76420517cdd333d501cea4f0dd352b2049ddce46"},
		{core.Plan{Name: "one", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a", Undoable: true}}}, "ed1e385dce09df4e836701ec2384c1352e355a792308fdc237586f9977fb4886"},
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

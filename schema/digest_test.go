package schema

import (
	"fmt"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestDigestsGolden pins the digests of rows: what is new in a row leaves the digests of those without it.
func TestDigestsGolden(t *testing.T) {
	root := core.Task{Partition: 3, Number: 4, ID: "o-1", Type: "order", PlanVersion: 5, InputHash: []byte{6}, State: "processed", Seq: 7, Round: 1, Origin: 8,
		CreatedAt: 9, UpdatedAt: 10, EndedAt: 11, EndNumber: 12}
	child, later := root, root
	child.Parent, child.ParentStep, child.ChildIndex = 1, 2, 3
	later.StartAt = 14
	q := newQueries(Columns())
	d := digests{of: q}
	for name, x := range map[string]struct {
		task core.Task
		want string
	}{"root": {root, "44aae3d84316626798a726148c578c2a67e186b3"}, "child": {child, "9e5f66ed1c28ec956d7ca5f7959b65bb621718be"}, "starts later": {later, "b952898f00986279db1399466bb485c5faf435e3"}} {
		got := digest(&d, q.chained.Tasks, q.chainedTasks, &TaskRow{Task: &x.task, Commit: 13})
		if fmt.Sprintf("%x", got) != x.want {
			t.Errorf("%s: %x, want %s", name, got, x.want)
		}
	}
	row := JournalRow{&core.Record{Seq: 5, At: 6, Actor: "a", Kind: core.KindFailed, State: core.StateProcessing, Round: 8, Step: 2, StepStatus: core.StepFailed, Attempt: 9, Code: 10,
		Reason: "so", Result: []byte("{}"), EffectsPossibleUntil: 11, Next: -1, Undo: true, Due: 12, Deadline: 13}, 3, 4, 7, 1, nil, false}
	got := digest(&d, q.chained.Journal, q.chainedJournal, &row)
	if want := "e0c456ca924d7ea76ea6e1c09dff556387039664"; fmt.Sprintf("%x", got) != want {
		t.Errorf("journal: %x, want %s", got, want)
	}
}

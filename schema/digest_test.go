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
	}{"root": {root, "1cbe06c425e3512ad58417156fcebf8cf73dcb06"}, "child": {child, "595c928e58965bd78469252162b7531ee9cbb7ee"}, "starts later": {later, "b97981eb431811ff35a19ea8f824e8ed500fcbea"}} {
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

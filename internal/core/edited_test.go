package core

import "testing"

// TestEditBeforeTheDatabaseWentBack: a step that was refused by the input before an edit, and was not done again because
// the task was parked, is undone by that input when the database went back: what ran in the lost time ran by it.
func TestEditBeforeTheDatabaseWentBack(t *testing.T) {
	p := Plan{Name: "order", Version: 1, Steps: []Step{{Name: "charge", Agent: "bank", Undoable: true, OnExhausted: PolicyError}}}.WithDefaults()
	task := Task{ID: "t1", Type: "order", Input: []byte(`1`), CreatedAt: 1}
	var out Outcome
	Birth(&p, &task, &Event{At: 1}, &out)
	apply := func(ev Event) {
		t.Helper()
		ev.At = task.UpdatedAt + 1
		if err := Apply(&p, &task, &ev, &out); err != nil {
			t.Fatal(err)
		}
	}
	apply(Event{Kind: EventReply, Seq: 1, Code: CodeRefused, Error: "no"})
	apply(Event{Kind: EventEdit, Input: []byte(`2`), Full: 1})
	apply(Event{Kind: EventWentBack, Until: task.UpdatedAt})
	if got := string(task.InputOf(0)); task.State != StatePending || got != "1" {
		t.Errorf("the task is %s, and its step is undone by input %s, want 1", task.State, got)
	}
}

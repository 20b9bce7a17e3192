package core

import "testing"

// TestKeyHasNoGeneration: a task that is submitted again after database and stream were lost, at another place, in another
// partition's count and by other commits, has the keys that its effects were made under.
//
// covers: L19
func TestKeyHasNoGeneration(t *testing.T) {
	before := Command{Task: "o-17", Step: "charge", Partition: 3, Number: 17, Seq: 4, Commit: 99, Attempt: 1}
	after := Command{Task: "o-17", Step: "charge", Partition: 3, Number: 1, Seq: 2, Commit: 100, Attempt: 3, Undo: true}
	if before.Key() != after.Key() || before.Key() != "o-17/charge/0" {
		t.Errorf("%q and %q", before.Key(), after.Key())
	}
	if again := (&Command{Task: "o-17", Step: "charge", Round: 1}); again.Key() == before.Key() {
		t.Errorf("a new round has the key %q of the one before", again.Key())
	}
}

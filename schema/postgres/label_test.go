package postgres

import (
	"bytes"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// A commit whose births have no labels says nothing about them; the table of labels hears of one that has.
func TestCommitsWithoutLabels(t *testing.T) {
	commits := newStatements(schema.Columns())
	sent := func(labels ...core.Label) string {
		t.Helper()
		b := &core.Batch{ID: 1, Partitions: []core.PartitionWrite{{Partition: 1}}, Writes: []core.TaskWrite{
			{Task: &core.Task{Partition: 1, Number: 1, ID: "a", Labels: labels}, Birth: true},
			{Task: &core.Task{Partition: 1, Number: 2, ID: "b", Labels: []core.Label{{Key: "of", Value: "a row that changes"}}}, Row: true},
		}}
		e := newEncoded(commits)
		e.fill(b, func(int) bool { return true })
		var wire bytes.Buffer
		if err := e.send(&wire); err != nil {
			t.Fatal(err)
		}
		return wire.String()
	}
	for name, c := range map[string]struct {
		wire string
		want bool
	}{"none": {sent(), false}, "one": {sent(core.Label{Key: "k", Value: "v"}), true}} {
		if got := bytes.Contains([]byte(c.wire), []byte(commits.labels.name)); got != c.want {
			t.Errorf("%s: the statement of labels is sent: %v, want %v", name, got, c.want)
		}
	}
	for _, s := range commits.fast() {
		if s.name == commits.labels.name {
			t.Error("it is prepared on each connection that commits")
		}
	}
}

package schema_test

import (
	"fmt"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
)

// TestLargestGroups: among thousands of groups, and beside one of more tasks than are counted, the largest are found wherever
// their names stand, and all of them together are what is counted.
//
// covers: O3
func TestLargestGroups(t *testing.T) {
	s := open(t, sqliteURL(t), schema.Options{})
	if err := s.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	number := 0
	fill := func(taskType string, tasks, each int) {
		t.Helper()
		const insert = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
			INSERT INTO tasks (partition, number, id, type, plan_version, input_hash, state, seq, round, failure_count, origin, created_at, updated_at, ended_at, end_number, commit_id, failed_step, fingerprint)
			SELECT 0, ?2 + i, 'x' || (?2 + i), ?3, 1, zeroblob(32), 'error', 6, 0, 0, 0, 1, 1, 1000 + i, ?2 + i, 1, 2, printf('%016x', 1 + i / ?4) FROM n`
		if _, err := schema.WriterDB(s).ExecContext(t.Context(), insert, tasks, number+1, taskType, each); err != nil {
			t.Fatal(err)
		}
		number += tasks
	}
	fill("a", 6000, 1)
	fill("b", 12_000, 12_000)
	fill("c", 15_000, 3)
	fill("y", 1, 1)
	fill("z", 1249, 1249)
	got, err := s.Groups(t.Context(), operate.GroupFilter{State: core.StateError, Limit: 3, Largest: true})
	if err != nil {
		t.Fatal(err)
	}
	first := ""
	for _, g := range got.Groups {
		first += fmt.Sprintf("%s %v, ", g.Type, g.Tasks)
	}
	if first != "b ≥ 10,000, z 1,249, c 3, " || got.All != (operate.Count{N: 6000 + 1 + 5000 + 2}) || got.Tasks != (operate.Count{N: 6000 + 10_000 + 15_000 + 1250, AtLeast: true}) {
		t.Errorf("%s of %v groups with %v tasks", first, got.All, got.Tasks)
	}
}

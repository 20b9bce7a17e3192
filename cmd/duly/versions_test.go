package main

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// marks are the versions that are deprecated.
type marks struct{ all core.Deprecations }

func (e *engine) versioning() operate.PlanControl {
	return &operate.Versioning{Store: &marks{}, Trail: e, Plans: e.Plans, Announce: func() error { return nil }, Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}
}

func (m *marks) Deprecated(context.Context) (core.Deprecations, error) { return m.all, nil }

func (m *marks) Deprecate(_ context.Context, name string, version int64, at core.Instant) error {
	m.all = slices.DeleteFunc(m.all, func(d core.Deprecation) bool { return d.Name == name && d.Version == version })
	if at != 0 {
		m.all = append(m.all, core.Deprecation{Name: name, Version: version, At: at})
	}
	return nil
}

// TestCheckAndMigrate: a plan in a file is checked against the tasks there are, and those whose begun steps are the same are
// moved to a stored version.
func TestCheckAndMigrate(t *testing.T) {
	w := apitest.New()
	w.Tasks, w.Records = nil, map[string][]core.Record{}
	second := w.Plan
	second.Version, second.Steps = 2, slices.Clone(second.Steps)
	second.Steps[1].Agent = "payment.card"
	w.Later = []core.Plan{second}
	add := func(id string, more func(*core.Task, *core.Outcome)) {
		task := &core.Task{ID: id, Type: "order", Number: int64(len(w.Tasks) + 1), Partition: apitest.PartitionOf(id, apitest.Partitions), Input: []byte(`{}`), CreatedAt: core.InstantOf(apitest.At)}
		var out core.Outcome
		core.Birth(&w.Plan, task, &core.Event{At: task.CreatedAt, Actor: "n"}, &out)
		w.Records[id] = slices.Clone(out.Records)
		if more != nil {
			more(task, &out)
			w.Records[id] = append(w.Records[id], out.Records...)
		}
		w.Tasks = append(w.Tasks, task.Summary())
	}
	answer := func(task *core.Task, out *core.Outcome) {
		if err := core.Apply(&w.Plan, task, &core.Event{Kind: core.EventReply, At: task.CreatedAt + 1000, Seq: 1, Result: []byte(`1`)}, out); err != nil {
			t.Fatal(err)
		}
	}
	add("fresh", nil)
	add("begun", answer)
	handler, err := w.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(apitest.As(operate.RoleOperator, handler))
	t.Cleanup(server.Close)
	run := func(code int, args string, says ...string) {
		t.Helper()
		got, out, errs := command(t, "", append(strings.Fields(args), "-s", server.URL)...)
		if got != code {
			t.Errorf("duly %s: exit %d, want %d\n%s%s", args, got, code, out, errs)
		}
		for _, text := range says {
			if !strings.Contains(out+errs, text) {
				t.Errorf("duly %s does not say %q:\n%s%s", args, text, out, errs)
			}
		}
	}
	run(exitDone, "plan check order@1 --last 10", "2 tasks played, 2 of them in flight: same 2, different 0, cannot be said 0")
	run(exitFailed, "plan check order@2", "same 1, different 1", "1 of those in flight may be moved", "begun  processing, version 1: different at row 2, try 1 of step credit answered: done",
		"was: do of charge, try 1, at payment.charge; the task is processing", "is: do of charge, try 1, at payment.card", "stays: step charge has begun, and version 2 has another agent for it")
	run(exitFailed, "plan check order@2 -o json", `"fate":"different"`, `"in_flight":2`)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("name: order\nversion: 3\nsteps:\n- name: credit\n  agent: credit.check\n  undoable: false\n  attempts_max: 9\n- name: charge\n  agent: payment.charge\n  after: [credit]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitDone, "plan check "+file, "same 2, different 0")
	run(exitFailed, "plan migrate order --to 2 --dry-run", "1 tasks may go on by version 2; 1 stay", "begun stays on version 1: step charge has begun")
	if len(w.Asked) != 0 {
		t.Errorf("a dry run asked %+v", w.Asked)
	}
	run(exitUse, "plan migrate order --to 2", "reason: none given")
	run(exitDone, "plan migrate order --to 2 --tasks fresh --reason card", "1 tasks asked to go on by version 2; 0 stay")
	if len(w.Asked) != 1 || w.Asked[0].Action != operate.ActionMigrate || w.Asked[0].Version != 2 || w.Asked[0].IfSeq != 1 || w.Asked[0].Reason != "card" {
		t.Errorf("asked %+v", w.Asked)
	}
	run(exitFailed, "plan migrate order --to 2 --tasks nope --reason card", "nope: no such task in flight or in error")
	run(exitNotFound, "plan migrate order --to 9 --dry-run", "version 9")
}

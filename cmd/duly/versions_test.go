package main

import (
	"context"
	"fmt"
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
	return &operate.Versioning{Store: &marks{}, Desk: e.desk(), Plans: e.Plans, Announce: func() error { return nil }, Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}
}

func (m *marks) Deprecated(context.Context) (core.Deprecations, error) { return m.all, nil }

func (m *marks) Deprecate(_ context.Context, name string, version int64, at core.Instant) error {
	m.all = slices.DeleteFunc(m.all, func(d core.Deprecation) bool { return d.Name == name && d.Version == version })
	if at != 0 {
		m.all = append(m.all, core.Deprecation{Name: name, Version: version, At: at})
	}
	return nil
}

// noSchedules has none.
type noSchedules struct{ operate.ScheduleStore }

func (noSchedules) Schedules(context.Context, int, string) ([]operate.Schedule, error) {
	return nil, nil
}

// TestPlanCheck: a plan in a file is checked against the tasks there are, and those are counted that may be moved.
func TestPlanCheck(t *testing.T) {
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
	add("begun-2", answer)
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
	run(exitDone, "plan check order@1 --last 10", "3 tasks played, 3 of them in flight: same 3, different 0, cannot be said 0")
	run(exitFailed, "plan check order@2", "same 1, different 2", "1 of those in flight may be moved", "    and 1 more task alike\n", "begun  processing, version 1: different at row 2: Step credit was done on attempt 1.",
		"was: do of charge, attempt 1, at payment.charge; the task is processing", "is: do of charge, attempt 1, at payment.card", "stays: step charge has begun, and version 2 has another agent for it")
	run(exitFailed, "plan check order@2 -o json", `"fate":"different"`, `"in_flight":3`, `"id":"begun-2"`)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("name: order\nversion: 3\nsteps:\n- name: credit\n  agent: credit.check\n  undoable: false\n  attempts_max: 9\n- name: charge\n  agent: payment.charge\n  after: [credit]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitDone, "plan check "+file, "same 3, different 0")
}

// TestPlanBreaksItsCallers: a version of a child's plan whose input schema does not take what plans in flight give their
// children is warned of by their names, with what does not fit: in check, in diff and when it is stored.
//
// covers: OP9
func TestPlanBreaksItsCallers(t *testing.T) {
	w := apitest.New()
	w.Tasks, w.Records = nil, map[string][]core.Record{}
	trip := core.Plan{Name: "trip", Version: 3, Steps: []core.Step{{Name: "approve", Kind: core.SignalStep}, {Name: "buy", Kind: core.TaskStep, Child: "order", Input: `{"cents": input.price}`, After: []int{0}},
		{Name: "parcels", Kind: core.EachStep, Child: "order", Elements: "input.parcels", After: []int{0}}, {Name: "bill", Kind: core.TaskStep, Child: "order", Input: `results.approve`, After: []int{0}}}}.WithDefaults()
	w.Later = []core.Plan{trip}
	for i, input := range []string{`{"price":12,"parcels":[{"cents":1}]}`, `{"price":"twelve","parcels":[{"cents":1},{"cents":null}]}`, `{"price":"ten","parcels":[]}`} {
		task := &core.Task{ID: fmt.Sprint("trip-", i), Type: "trip", Number: int64(i + 1), Partition: apitest.PartitionOf(fmt.Sprint("trip-", i), apitest.Partitions), Input: []byte(input), CreatedAt: core.InstantOf(apitest.At)}
		var out core.Outcome
		core.Birth(&trip, task, &core.Event{At: task.CreatedAt, Actor: "n"}, &out)
		w.Records[task.ID] = slices.Clone(out.Records)
		view := task.Summary()
		view.Input = task.Input
		w.Tasks = append(w.Tasks, view)
	}
	handler, err := w.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(apitest.As(operate.RoleOperator, handler))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("name: order\nversion: 2\ninput_schema: {type: object, required: [cents], properties: {cents: {type: integer}}}\nsteps:\n- name: credit\n  agent: credit.check\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args string
		code int
	}{{"plan check " + file, exitFailed}, {"plan diff " + file, exitFailed}, {"plan apply " + file, exitDone}} {
		code, out, errs := command(t, "", append(strings.Fields(x.args), "-s", server.URL, "-o", "text")...)
		if code != x.code {
			t.Errorf("duly %s: exit %d, want %d\n%s%s", x.args, code, x.code, out, errs)
		}
		for _, says := range []string{"warning: plan trip version 3, step buy: its next children take this version, and the inputs of 2 of its 3 tasks in flight do not fit it; task trip-1: input does not fit the input schema of plan order version 2", `"/cents"`,
			"warning: plan trip version 3, step parcels: its next children take this version, and the inputs of 1 of its 3 tasks in flight do not fit it; task trip-1",
			"warning: plan trip version 3, step bill: its next children take this version, and the inputs of 3 tasks in flight are not known yet"} {
			if !strings.Contains(errs, says) {
				t.Errorf("duly %s does not say %q:\n%s%s", x.args, says, out, errs)
			}
		}
	}
}

// migration is the preview of a migration: one of its tasks stays.
func (e *engine) migration(sel operate.Selection, r operate.Request) (operate.Preview, error) {
	what := fmt.Sprint(sel.IDs)
	if sel.Filter != nil {
		what = fmt.Sprintf("%s@%d %s %s", sel.Filter.Type, sel.Filter.PlanVersion, sel.Filter.State, sel.Filter.Label)
	}
	e.migrations = append(e.migrations, fmt.Sprintf("%s to %d: %s", what, r.Version, r.Reason))
	return operate.Preview{Token: "tok-1", Selection: "tasks of type order", Action: r.Action, Tasks: e.previews, Expires: time.Now().Add(time.Minute),
		Rehearsal: &operate.Rehearsal{Repairable: e.previews - e.stay, Refused: e.stay, Reasons: []operate.ReasonCount{{Reason: "step charge has begun, and version 2 has another agent for it", Tasks: e.stay}}}}, nil
}

// TestPlanMigrate: a migration is an operation over many tasks. Its dry run says how many stay and why, and starts nothing;
// above 100 tasks the number has to be said.
//
// covers: OP2, OP9
func TestPlanMigrate(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleOperator)
	e.previews, e.stay = 90, 7
	e.run(exitFailed, "plan migrate order --to 2 --from 1 --state processing --label tier=gold --dry-run", "REPAIRABLE    83", "REFUSED       7", "step charge has begun, and version 2 has another agent for it")
	e.stay = 0
	e.run(exitDone, "plan migrate order --to 2 --dry-run -o json", `"repairable":90`)
	e.run(exitUse, "plan migrate order --to 2", "reason: none given")
	e.run(exitUse, "plan migrate order --to 2 --from 2 --dry-run", "from: 2, want another version than 2")
	e.run(exitUse, "plan migrate order --to 0 --dry-run", "to: 0, want a version")
	e.run(exitUse, "plan migrate order --to 2 --state undone --dry-run", `state: "undone", want pending, processing or error`)
	e.run(exitUse, "plan migrate order --to 2 --tasks a,b --from 1 --dry-run", "want one of both")
	if len(e.started) != 0 {
		t.Fatalf("started: %v", e.started)
	}
	e.steps = []operate.Operation{{ID: "op-1", Action: operate.ActionMigrate, State: operate.OperationDone, Tasks: 90, Tally: operate.Tally{Done: 90}}}
	e.run(exitDone, "plan migrate order --to 2 --reason card --rate 50", "REPAIRABLE    90", "DONE          90")
	e.previews = 101
	e.run(exitUse, "plan migrate order --to 2 --reason card", "no terminal to ask at: --yes 101")
	e.run(exitState, "plan migrate order --to 2 --reason card --yes 100", "the preview has 101 tasks, and --yes says 100; nothing was started")
	e.steps = []operate.Operation{{ID: "op-1", Action: operate.ActionMigrate, State: operate.OperationDone, Tasks: 101, Tally: operate.Tally{Done: 100, Skipped: 1}}}
	e.run(exitFailed, "plan migrate order --to 2 --reason card --yes 101", "1 task was not moved (duly op show op-1 --outcome skipped shows why)")
	e.run(exitDone, "plan migrate order --to 2 --reason card --yes 101 --detach", "operation op-1 is running over 101 tasks")
	e.previews = 0
	e.run(exitDone, "plan migrate order --to 2 --reason card", "no task is to be moved to version 2")
	e.run(exitFailed, "plan migrate order --to 2 --tasks o-1,o-2 --reason card", "2 of the tasks that are named are not there")
	if got, want := fmt.Sprint(e.started), "[tok-1 50 20 card 90 tok-1 0 20 card 101 tok-1 0 20 card 101]"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(e.migrations[0], e.migrations[len(e.migrations)-1]), "order@1 processing tier=gold to 2: [{order o-1} {order o-2}] to 2: card"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

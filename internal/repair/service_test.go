package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// refusal is what an action was refused with; a test fails when it was not.
func refusal(t *testing.T, err error) *operate.Refusal {
	t.Helper()
	var r *operate.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal", err)
	}
	return r
}

// A preview freezes what it counts: what changes or joins later is not a member.
//
// covers: OP3
func TestPreviewFreezes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 30, "card 17 declined")
		group := groupOf(tasks[0])
		p, err := w.service().Preview(t.Context(), anna, operate.Selection{Group: group}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		w.failing(core.PolicyError, 7, "card 18 declined")
		if p.Tasks != 30 || len(p.Sample) != 10 || p.Selection != "tasks of type order that are in error and failed in step pay like: card 17 declined" {
			t.Errorf("preview %+v", p)
		}
		if len(p.Token) < 26 || time.Until(p.Expires) > 15*time.Minute || time.Until(p.Expires) < 14*time.Minute {
			t.Errorf("token %q until %v", p.Token, p.Expires)
		}
		op, err := w.service().Start(t.Context(), anna, p.Token, 100, 30, "the bank is back", 0)
		if err != nil {
			t.Fatal(err)
		}
		if op.Tasks != 30 || op.Tally.Waiting != 30 || op.Rate != 100 || op.BrakePct != 30 || op.By != "anna" || op.Rehearsal == nil {
			t.Errorf("operation %+v", op)
		}
		if len(w.notes) != 1 || w.notes[0].Target != "group/"+group || !strings.Contains(w.notes[0].Text, "resubmit of 30 tasks: the bank is back") {
			t.Errorf("notes %+v", w.notes)
		}
	})
}

// All that match are selected, with their number and the filter in words, also of more than 10,000.
//
// covers: OP9
func TestPreviewOfAllMatching(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.failing(core.PolicyError, 10_001, "card declined")
		sel := operate.Selection{Filter: &core.Filter{Type: "order", State: core.StateError, Step: "pay", CreatedTo: core.InstantOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), Limit: 50, After: "page 2"}}
		p, err := w.service().Preview(t.Context(), anna, sel, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		if want := "tasks of type order that are in error, failed in step pay, created before 2030-01-02T03:04:05Z"; p.Tasks != 10_001 || p.Selection != want {
			t.Errorf("%d %s, want 10,001 %s", p.Tasks, p.Selection, want)
		}
		if p.Rehearsal.Repairable != 10_001 || p.Rehearsal.Sampled != 0 {
			t.Errorf("rehearsal %+v", p.Rehearsal)
		}
		if got := refusal(t, second(w.service().Start(t.Context(), anna, p.Token, 0, 0, "bank", 10_000))); got.Field != "confirm" || !strings.Contains(got.Detail, "10001 tasks") {
			t.Errorf("refusal %+v", got)
		}
	})
}

func second(_ operate.Operation, err error) error { return err }

// covers: OP9, OP10
func TestPreviewRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 2, "card declined")
		group := operate.Selection{Group: groupOf(tasks[0])}
		for _, test := range []struct {
			name  string
			by    operate.Actor
			sel   operate.Selection
			r     operate.Request
			code  int
			field string
		}{
			{"a viewer", operate.Actor{Name: "eve", Role: operate.RoleViewer}, group, resubmit, 403, ""},
			{"an action on one task alone", anna, group, operate.Request{Action: operate.ActionExtend}, 400, "action"},
			{"no selection", anna, operate.Selection{}, resubmit, 400, "selection"},
			{"two selections", anna, operate.Selection{Group: "g", Filter: &core.Filter{Type: "order"}}, resubmit, 400, "selection"},
			{"everything there is", anna, operate.Selection{Filter: &core.Filter{Limit: 10}}, resubmit, 400, "filter"},
			{"too many ids", anna, operate.Selection{IDs: make([]operate.TaskRef, operate.ListMax+1)}, resubmit, 400, "ids"},
			{"a group that is not there", anna, operate.Selection{Group: "nope"}, resubmit, 404, ""},
			{"an edit without input", anna, group, operate.Request{Action: operate.ActionEdit}, 400, "input"},
			{"an input with no edit", anna, group, operate.Request{Action: operate.ActionResubmit, Input: []byte(`{}`)}, 400, "input"},
			{"a large input", anna, group, operate.Request{Action: operate.ActionEdit, Input: make([]byte, core.InputBytesMax+1)}, 413, "input"},
			{"an accept without result", anna, group, operate.Request{Action: operate.ActionAccept}, 400, "result"},
			{"a large result", anna, group, operate.Request{Action: operate.ActionAccept, Result: make([]byte, core.ResultBytesMax+1)}, 413, "result"},
			{"a resolve as nothing", anna, group, operate.Request{Action: operate.ActionResolve}, 400, "as"},
			{"an undo as something", anna, group, operate.Request{Action: operate.ActionUndo, As: core.StateUndone}, 400, "as"},
			{"a deadline that has passed", anna, group, operate.Request{Action: operate.ActionResubmit, Until: time.Now().Add(-time.Second)}, 400, "until"},
			{"an input and a patch", anna, group, operate.Request{Action: operate.ActionEdit, Input: []byte(`{}`), Patch: []byte(`{"a":1}`)}, 400, "patch"},
			{"a patch of nothing", anna, group, operate.Request{Action: operate.ActionEdit, Patch: []byte(`{}`)}, 400, "patch"},
			{"a patch that is a list", anna, group, operate.Request{Action: operate.ActionEdit, Patch: []byte(`[1]`)}, 400, "patch"},
			{"a patch that is no JSON", anna, group, operate.Request{Action: operate.ActionEdit, Patch: []byte(`{"a"`)}, 400, "patch"},
			{"a patch without an edit", anna, group, operate.Request{Action: operate.ActionUndo, Patch: []byte(`{"a":1}`)}, 400, "patch"},
			{"a large patch", anna, group, operate.Request{Action: operate.ActionEdit, Patch: []byte(`{"a":"` + strings.Repeat("x", operate.PatchBytesMax) + `"}`)}, 413, "patch"},
			{"a deep patch", anna, group, operate.Request{Action: operate.ActionEdit, Patch: []byte(strings.Repeat(`{"a":`, patchDepthMax+1) + `1` + strings.Repeat(`}`, patchDepthMax+1))}, 400, "patch"},
			{"one task's row", anna, group, operate.Request{Action: operate.ActionResubmit, IfSeq: 3}, 400, "if_seq"},
		} {
			_, err := w.service().Preview(t.Context(), test.by, test.sel, test.r)
			var r *operate.Refusal
			if !errors.As(err, &r) || r.Code != test.code || r.Field != test.field {
				t.Errorf("%s: %v %+v, want %d about %q", test.name, err, r, test.code, test.field)
			}
		}
		if len(w.ops) != 0 {
			t.Errorf("%d operations were stored", len(w.ops))
		}
	})
}

// Starting needs the reason, the number above 100, the actor of the preview or an admin, and a group that no other
// operation holds. Every start is audited, the refused ones too.
//
// covers: OP3, OP10, OP16
func TestStartRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 101, "card declined")
		group := operate.Selection{Group: groupOf(tasks[0])}
		s := w.service()
		preview := func() string {
			t.Helper()
			p, err := s.Preview(t.Context(), anna, group, resubmit)
			if err != nil {
				t.Fatal(err)
			}
			return p.Token
		}
		empty, err := s.Preview(t.Context(), anna, operate.Selection{IDs: []operate.TaskRef{{Type: "order", ID: "nope"}}}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		old := preview()
		pass(operate.PreviewFor)
		token := preview()
		for _, test := range []struct {
			name        string
			by          operate.Actor
			token       string
			rate, brake int
			reason      string
			confirm     int64
			code        int
			field       string
		}{
			{"no token", anna, "nope", 0, 0, "bank", 101, 404, ""},
			{"a viewer", operate.Actor{Name: "anna", Role: operate.RoleViewer}, token, 0, 0, "bank", 101, 403, ""},
			{"another operator", ben, token, 0, 0, "bank", 101, 403, ""},
			{"expired", anna, old, 0, 0, "bank", 101, 409, ""},
			{"no tasks", anna, empty.Token, 0, 0, "bank", 0, 409, ""},
			{"no reason", anna, token, 0, 0, " ", 101, 400, "reason"},
			{"a long reason", anna, token, 0, 0, strings.Repeat("x", core.WordsBytesMax+1), 101, 400, "reason"},
			{"no number", anna, token, 0, 0, "bank", 0, 400, "confirm"},
			{"another number", anna, token, 0, 0, "bank", 100, 400, "confirm"},
			{"a rate below 0", anna, token, -1, 0, "bank", 101, 400, "rate"},
			{"a rate above all", anna, token, RateMax + 1, 0, "bank", 101, 400, "rate"},
			{"a brake above 100", anna, token, 0, 101, "bank", 101, 400, "brake"},
		} {
			before := len(w.entries)
			_, err := s.Start(t.Context(), test.by, test.token, test.rate, test.brake, test.reason, test.confirm)
			var r *operate.Refusal
			if !errors.As(err, &r) || r.Code != test.code || r.Field != test.field {
				t.Errorf("%s: %v %+v, want %d about %q", test.name, err, r, test.code, test.field)
				continue
			}
			if len(w.entries) != before+1 {
				t.Errorf("%s: %d audit entries", test.name, len(w.entries)-before)
				continue
			}
			if e := w.entries[before]; e.Action != "operation.start" || e.Actor != test.by.Name || e.Role != test.by.Role || e.Outcome != "refused: "+r.Detail || e.Target != "operation/"+test.token {
				t.Errorf("%s: entry %+v", test.name, e)
			}
		}
		if _, err := s.Start(t.Context(), admin, token, 0, 0, "bank", 101); err != nil {
			t.Errorf("an admin starts the preview of another: %v", err)
		}
		if e := w.entries[len(w.entries)-1]; e.Outcome != "done" || e.Actor != "root" || e.Reason != "bank" {
			t.Errorf("entry %+v", e)
		}
		if r := refusal(t, second(s.Start(t.Context(), anna, token, 0, 0, "bank", 101))); r.Code != 409 || !strings.Contains(r.Detail, "has been started") {
			t.Errorf("started twice: %+v", r)
		}
		if r := refusal(t, second(s.Start(t.Context(), anna, preview(), 0, 0, "bank", 101))); r.Code != 409 || !strings.Contains(r.Detail, "operation "+token) {
			t.Errorf("the same group: %+v", r)
		}
		_, err = s.Change(t.Context(), anna, token, operate.Change{State: operate.OperationStopped, Reason: "other plans"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Start(t.Context(), anna, preview(), 0, 0, "bank", 101); err != nil {
			t.Errorf("the group is free again: %v", err)
		}
		for i := range activeMax - 1 {
			p, err := s.Preview(t.Context(), anna, operate.Selection{IDs: []operate.TaskRef{{Type: "order", ID: tasks[i].live.ID}}}, resubmit)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Start(t.Context(), anna, p.Token, 0, 0, "bank", 0); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.Preview(t.Context(), anna, operate.Selection{IDs: []operate.TaskRef{{Type: "order", ID: tasks[50].live.ID}}}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		if r := refusal(t, second(s.Start(t.Context(), anna, p.Token, 0, 0, "bank", 0))); r.Code != 409 || !strings.Contains(r.Detail, "the limit") {
			t.Errorf("too many: %+v", r)
		}
	})
}

// What is not in the audit trail is not done.
//
// covers: OP16
func TestStartNeedsTheTrail(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 2, "card declined")
		p, err := w.service().Preview(t.Context(), anna, operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		s := NewService(config(), w, operate.NewDesk(noTrail{w}, config().Now, quiet), w, nil, w, quiet)
		if _, err := s.Start(t.Context(), anna, p.Token, 0, 0, "bank", 0); err == nil {
			t.Error("it started")
		}
		if op, _ := w.op(p.Token); op.State != operate.OperationPreview {
			t.Errorf("it is %s", op.State)
		}
	})
}

type noTrail struct{ *world }

func (noTrail) Append(context.Context, operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	return 0, nil, errors.New("trail away")
}

// An operation is paused, resumed and stopped, each with its actor in the audit trail; what cannot be is refused.
//
// covers: OP4, OP10, OP16
func TestChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 400, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		s, slow := w.service(), 20
		defer w.runner(t.Context(), config())()
		change := func(c operate.Change) (operate.Operation, error) { return s.Change(t.Context(), ben, op.ID, c) }
		if _, err := change(operate.Change{Rate: &slow}); err != nil {
			t.Fatal(err)
		}
		w.reaches(op.ID, "its third wave", func(op *operate.Operation) bool { return op.Wave >= 3 })
		got, err := change(operate.Change{State: operate.OperationPaused, Reason: "lunch"})
		if err != nil || got.Why != "paused by ben: lunch" {
			t.Fatalf("%v, why %q", err, got.Why)
		}
		pass(time.Second)
		paused, _ := w.op(op.ID)
		pass(time.Minute)
		if again, _ := w.op(op.ID); again.Tally.Waiting != paused.Tally.Waiting || again.Tally.Asked != 0 || again.State != operate.OperationPaused {
			t.Errorf("paused at %+v, then %+v", paused.Tally, again.Tally)
		}
		many := RateMax + 1
		for _, test := range []struct {
			name  string
			by    operate.Actor
			id    string
			c     operate.Change
			code  int
			field string
		}{
			{"nothing", ben, op.ID, operate.Change{}, 400, "state"},
			{"done", ben, op.ID, operate.Change{State: operate.OperationDone}, 400, "state"},
			{"paused twice", ben, op.ID, operate.Change{State: operate.OperationPaused}, 409, ""},
			{"a viewer", operate.Actor{Name: "eve", Role: operate.RoleViewer}, op.ID, operate.Change{State: operate.OperationRunning}, 403, ""},
			{"a rate above all", ben, op.ID, operate.Change{Rate: &many}, 400, "rate"},
			{"stopped without a reason", ben, op.ID, operate.Change{State: operate.OperationStopped}, 400, "reason"},
			{"none", ben, "nope", operate.Change{State: operate.OperationPaused}, 404, ""},
		} {
			_, err := s.Change(t.Context(), test.by, test.id, test.c)
			var r *operate.Refusal
			if !errors.As(err, &r) || r.Code != test.code || r.Field != test.field {
				t.Errorf("%s: %v %+v, want %d about %q", test.name, err, r, test.code, test.field)
			}
			if e := w.entries[len(w.entries)-1]; e.Actor != test.by.Name || r != nil && e.Outcome != "refused: "+r.Detail {
				t.Errorf("%s: entry %+v", test.name, e)
			}
		}
		if _, err := change(operate.Change{State: operate.OperationRunning}); err != nil {
			t.Fatal(err)
		}
		w.reaches(op.ID, "more", func(op *operate.Operation) bool { return op.Tally.Waiting < paused.Tally.Waiting })
		if _, err := change(operate.Change{State: operate.OperationStopped, Reason: "the bank is gone again"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		stopped, _ := w.op(op.ID)
		if stopped.State != operate.OperationStopped || stopped.Tally.Waiting == 0 || stopped.Tally.Asked != 0 || stopped.Ended.IsZero() {
			t.Errorf("%s with %+v, ended %v", stopped.State, stopped.Tally, stopped.Ended)
		}
		if r := refusal(t, second(change(operate.Change{State: operate.OperationRunning}))); r.Code != 409 {
			t.Errorf("resumed after a stop: %+v", r)
		}
		actions := ""
		for _, e := range w.entries {
			if e.Outcome == "done" && e.Via == "http" {
				actions += e.Action + " by " + e.Actor + "\n"
			}
		}
		want := "operation.start by anna\noperation.rate by ben\noperation.pause by ben\noperation.resume by ben\noperation.stop by ben\n"
		if actions != want {
			t.Errorf("audited\n%swant\n%s", actions, want)
		}
	})
}

// A change is not lost to the runner's own writes, and does not undo them.
func TestChangeBesideTheRunner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 3, "card declined")
		op := w.started(operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		busy := &fencing{world: w, n: 3}
		s := NewService(config(), busy, w.desk(), w, nil, w, quiet)
		got, err := s.Change(t.Context(), anna, op.ID, operate.Change{State: operate.OperationPaused})
		if err != nil || got.State != operate.OperationPaused || got.Wave != 3 {
			t.Errorf("%v, %+v", err, got)
		}
		busy.n = 1000
		if r := refusal(t, second(s.Change(t.Context(), anna, op.ID, operate.Change{State: operate.OperationRunning}))); r.Code != 503 || r.RetryMS == 0 {
			t.Errorf("refusal %+v", r)
		}
	})
}

// fencing is a store in which another writes first, n times.
type fencing struct {
	*world
	n int
}

func (f *fencing) Update(ctx context.Context, op operate.Operation, was int64) error {
	if f.n > 0 {
		f.n--
		other, err := f.Operation(ctx, op.ID)
		if err != nil {
			return err
		}
		e := other.Epoch
		other.Epoch++
		other.Wave++
		if err := f.world.Update(ctx, other, e); err != nil {
			return err
		}
	}
	return f.world.Update(ctx, op, was)
}

// holding says that the carrier is away and the bank paused.
type holding map[string]string

func (h holding) Holds(context.Context) (Hold, error) {
	return func(_ *core.Task, s *core.Step, _ bool) string { return h[s.Agent] }, nil
}

// The rehearsal tells what happens when all else stands still: who can be repaired, who would be undone, who is refused
// and who waits.
//
// covers: OP3, OP2
func TestRehearsalTellsWhatHappens(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 40, "card declined")
		gaveUp := func(_ *task, _ string, undo bool) answer {
			if undo {
				return answer{code: core.CodeRefused, text: "too late"}
			}
			return answer{}
		}
		w.set(func() { w.answer = gaveUp })
		for _, tk := range tasks[:6] { // their undo gave up
			w.by(tk, core.EventUndo)
		}
		pass(time.Second)
		// Those of another plan wait: the agent of their failed step is away.
		w.set(func() {
			w.answer = func(_ *task, step string, _ bool) answer {
				if step == "ask" {
					return answer{code: core.CodeRefused, text: "no"}
				}
				return answer{}
			}
		})
		w.birth(core.Plan{Name: "quote", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
			{Name: "ask", Agent: "oracle", OnExhausted: core.PolicyError}}}.WithDefaults(), 11)
		s := NewService(config(), w, w.desk(), w, holding{"oracle": "its agent oracle is away"}, w, quiet)
		p, err := s.Preview(t.Context(), anna, operate.Selection{Filter: &core.Filter{State: core.StateError}}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		r := p.Rehearsal
		if r.Repairable != 34 || r.Refused != 6 || r.Waiting != 11 || r.FailedAgain != 0 || r.Sampled != 0 {
			t.Errorf("rehearsal %+v", r)
		}
		want := []operate.ReasonCount{{Reason: "its agent oracle is away", Tasks: 11}, {Reason: "its undo has begun: finish the undo before a resubmit", Tasks: 6}}
		if fmt.Sprint(r.Reasons) != fmt.Sprint(want) {
			t.Errorf("reasons %v, want %v", r.Reasons, want)
		}
		w.set(func() {
			w.answer = func(_ *task, step string, _ bool) answer {
				if step == "ask" {
					return answer{after: time.Hour / 2}
				}
				return answer{}
			}
		})
		op, err := s.Start(t.Context(), anna, p.Token, 0, 0, "the bank is back", p.Tasks)
		if err != nil {
			t.Fatal(err)
		}
		defer w.runner(t.Context(), config())()
		got, _ := w.reaches(op.ID, "its outcomes", func(op *operate.Operation) bool {
			return op.Tally.Waiting == 0 && op.Tally.Done+op.Tally.Skipped >= r.Repairable+r.Refused
		})
		if got.Tally.Done != r.Repairable || got.Tally.Skipped != r.Refused || got.Tally.Asked != r.Waiting {
			t.Errorf("tally %+v, rehearsed %+v", got.Tally, r)
		}
	})
}

// Of each action the rehearsal tells what will be: also that the deadline that is given leaves no time for a step that
// took three seconds before, so that the task would be undone.
//
// covers: OP3
func TestRehearsalOfEachAction(t *testing.T) {
	soon := func(d time.Duration) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d) } // of a bubble's clock
	for _, test := range []struct {
		name string
		r    operate.Request
		want operate.Rehearsal
		got  operate.Tally
	}{
		{"no time", operate.Request{Action: operate.ActionResubmit, Until: soon(5 * time.Second)}, operate.Rehearsal{FailedAgain: 1}, operate.Tally{FailedAgain: 1}},
		{"time enough", operate.Request{Action: operate.ActionResubmit, Until: soon(10 * time.Second)}, operate.Rehearsal{Repairable: 1}, operate.Tally{Done: 1}},
		{"undo", operate.Request{Action: operate.ActionUndo}, operate.Rehearsal{Repairable: 8}, operate.Tally{Done: 8}},
		{"edit", operate.Request{Action: operate.ActionEdit, Input: []byte(`{"card":2}`)}, operate.Rehearsal{Repairable: 8}, operate.Tally{Done: 8}},
		{"accept", operate.Request{Action: operate.ActionAccept, Result: []byte(`{"by":"hand"}`)}, operate.Rehearsal{Repairable: 8}, operate.Tally{Done: 8}},
		{"resolve", operate.Request{Action: operate.ActionResolve, As: core.StateProcessed}, operate.Rehearsal{Repairable: 8}, operate.Tally{Done: 8}},
		{"another step", operate.Request{Action: operate.ActionResubmit, Step: "ship"}, operate.Rehearsal{Refused: 8}, operate.Tally{Skipped: 8}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				tasks := w.failingOf(orders(core.PolicyError), int(test.got.Total()), "card declined", 3*time.Second)
				op := w.started(operate.Selection{Group: groupOf(tasks[0])}, test.r)
				w.set(func() {
					w.answer = func(_ *task, step string, undo bool) answer {
						if step == "pay" && !undo {
							return answer{after: 3 * time.Second}
						}
						return answer{}
					}
				})
				r := *op.Rehearsal
				r.Reasons = nil
				if fmt.Sprint(r) != fmt.Sprint(test.want) {
					t.Errorf("rehearsal %+v, want %+v", op.Rehearsal, test.want)
				}
				defer w.runner(t.Context(), config())()
				if got, _ := w.until(op.ID, operate.OperationDone); got.Tally != test.got {
					t.Errorf("tally %+v, want %+v", got.Tally, test.got)
				}
				if test.r.Action == operate.ActionEdit && string(tasks[0].live.Input) != `{"card":2}` {
					t.Errorf("input %s", tasks[0].live.Input)
				}
			})
		})
	}
}

// Tasks whose service may have forgotten their key are counted by one reason, whenever each was used, and go on when it is
// said that nothing is there.
func TestRehearsalOfOldKeys(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(func() {
			w.answer = func(_ *task, step string, _ bool) answer {
				if step == "pay" {
					return answer{after: -1}
				}
				return answer{}
			}
		})
		p := orders(core.PolicyError)
		p.Steps[1].KeyLasts = time.Minute
		for range 3 {
			w.birth(p, 2)
		}
		pass(time.Minute)
		for _, test := range []struct {
			found   core.ProbeOutcome
			refused int64
		}{{"", 6}, {core.ProbeAbsent, 0}} {
			p, err := w.service().Preview(t.Context(), anna, operate.Selection{Filter: &core.Filter{State: core.StateError}}, operate.Request{Action: operate.ActionResubmit, Found: test.found})
			if err != nil {
				t.Fatal(err)
			}
			if r := p.Rehearsal; r.Refused != test.refused || r.Repairable+r.Waiting+r.Refused != 6 || test.refused != 0 && (len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0].Reason, "its service remembers keys for 1m0s")) {
				t.Errorf("found %q: %+v", test.found, r)
			}
		}
	})
}

// What an edit or an accept gives has to fit the schemas of the plan, as the owner will say.
func TestRehearsalOfWhatDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := core.Plan{Name: "order", Version: 1, CompleteBy: time.Hour, InputSchema: `{"required":["zip"]}`, Steps: []core.Step{
			{Name: "approve", Kind: core.SignalStep, Schema: `{"type":"object"}`, OnExhausted: core.PolicyError}}}
		for _, tk := range w.begin(p.WithDefaults(), 3) {
			if err := w.apply(tk, core.Event{Kind: core.EventSignal, Step: "approve", Code: core.CodeRefused, Error: "no"}); err != nil {
				t.Fatal(err)
			}
		}
		cfg := config()
		cfg.CheckInput = func(*core.Plan, []byte) error { return errors.New("zip is missing") }
		cfg.CheckSignal = func(*core.Step, []byte) error { return errors.New("got a number, want object") }
		s := NewService(cfg, w.db, w.desk(), w.db, nil, w.db, quiet)
		for want, r := range map[string]operate.Request{
			"payload does not fit the schema of step approve: got a number, want object":  {Action: operate.ActionAccept, Result: []byte(`1`)},
			"input does not fit the input schema of plan order version 1: zip is missing": {Action: operate.ActionEdit, Input: []byte(`{}`)},
		} {
			p, err := s.Preview(t.Context(), anna, operate.Selection{Filter: &core.Filter{State: core.StateError}}, r)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.Rehearsal.Reasons, []operate.ReasonCount{{Reason: want, Tasks: 3}}) || p.Rehearsal.Refused != 3 {
				t.Errorf("%s: %+v, want %s", r.Action, p.Rehearsal, want)
			}
		}
	})
}

// A payload for many tasks is no payload of an encrypted one: its agents would refuse it, and it could be read.
//
// covers: OP11
func TestPreviewOfEncryptedTasks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 3, "card declined")
		w.set(func() {
			tasks[2].Row.Input = []byte(`{"duly.enc":"A256GCM-1","key":"k-7","data":"ZGF0YQ=="}`)
		})
		group := operate.Selection{Group: groupOf(tasks[0])}
		for _, r := range []operate.Request{{Action: operate.ActionEdit, Input: []byte(`{"card":2}`)}, {Action: operate.ActionAccept, Result: []byte(`1`)}} {
			_, err := w.service().Preview(t.Context(), anna, group, r)
			var refused *operate.Refusal
			if !errors.As(err, &refused) || refused.Code != 400 || !strings.Contains(refused.Detail, `"k-7"`) {
				t.Errorf("%s: %v", r.Action, err)
			}
		}
		if _, err := w.service().Preview(t.Context(), anna, group, resubmit); err != nil {
			t.Errorf("a resubmit: %v", err)
		}
	})
}

// Of more members than it may play a rehearsal plays a sample, spread evenly, and says of how many.
//
// covers: OP3
func TestRehearsalOfASample(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.failing(core.PolicyError, 1000, "card declined")
		cfg := config()
		cfg.RehearseMax = 100
		s := NewService(cfg, w, w.desk(), w, nil, w, quiet)
		p, err := s.Preview(t.Context(), anna, operate.Selection{Filter: &core.Filter{State: core.StateError}}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Rehearsal; p.Tasks != 1000 || r.Sampled != 100 || r.Repairable != 100 {
			t.Errorf("of %d: %+v", p.Tasks, r)
		}
	})
	for _, test := range []struct{ all, most int64 }{{0, 5}, {5, 5}, {6, 5}, {1_000_000, 20_000}, {21, 20}, {1000, 3}} {
		list, n, last := blocks(test.all, test.most), int64(0), int64(0)
		for _, b := range list {
			if b.after < last || b.to > test.all || b.to < b.after {
				t.Errorf("%d of %d: blocks %v", test.most, test.all, list)
			}
			n, last = n+b.to-b.after, b.to
		}
		if n > test.most || n < min(test.all, test.most)*9/10 {
			t.Errorf("%d of %d: %d in %v", test.most, test.all, n, list)
		}
		if test.all > test.most && last < test.all/2 {
			t.Errorf("%d of %d: the last half is left out: %v", test.most, test.all, list)
		}
	}
}

// A rehearsal that takes too long says how far it came.
//
// covers: OP3
func TestRehearsalIsBoundedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.failing(core.PolicyError, 3000, "card declined")
		cfg, began, asked := config(), time.Now(), 0
		cfg.Now = func() time.Time { asked++; return began.Add(time.Duration(asked) * 2 * time.Second) }
		s := NewService(cfg, w, w.desk(), w, nil, w, quiet)
		p, err := s.Preview(t.Context(), anna, operate.Selection{Filter: &core.Filter{State: core.StateError}}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Rehearsal; r.Sampled == 0 || r.Sampled >= 3000 || r.Repairable != r.Sampled {
			t.Errorf("of %d: %+v", p.Tasks, r)
		}
	})
}

// Whatever happens, each member has one outcome and they add up to the frozen total: the world checks it with every
// write. Nothing is asked for twice.
//
// covers: OP2, Q4
func TestTallyAddsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(rt, "tasks")
		fails := rapid.SliceOfN(rapid.IntRange(0, 9), n, n).Draw(rt, "fates")
		turns := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 25).Draw(rt, "turns")
		bubbleOf(t, rt, func(t *testing.T, w *world) {
			plan := orders(core.PolicyUndo)
			plan.Steps[1].CompleteBy, plan.Grace = 200*time.Millisecond, 50*time.Millisecond
			tasks := w.failingOf(plan, n, "card declined", 0)
			op := w.started(operate.Selection{Filter: &core.Filter{Step: "pay"}}, resubmit)
			w.set(func() {
				w.answer = func(tk *task, step string, undo bool) answer {
					f := fails[int(tk.live.Number-1)*partitions+tk.live.Partition]
					switch {
					case undo || step != "pay" || f > 4:
						return answer{}
					case f == 0:
						return answer{after: -1} // silent
					case f == 1:
						return answer{code: core.CodeAgentError, text: "later", after: 100 * time.Millisecond}
					}
					return answer{code: core.CodeRefused, text: fmt.Sprintf("refused %d for %s", tk.live.Number, []string{"fraud", "age", "limit"}[f-2])}
				}
			})
			m := dying(w, 0)
			runner := func() (stop func()) {
				return start(t.Context(), NewRunner(config(), m, m, operate.NewDesk(m, config().Now, quiet), leads(true), nil, func(error) {}, quiet))
			}
			stop, s := runner(), w.service()
			for i, turn := range turns {
				switch turn {
				case 0, 1: // killed
					m.mu.Lock()
					m.dead = true
					m.mu.Unlock()
					stop()
					m = dying(w, 0)
					stop = runner()
				case 2:
					_, _ = s.Change(t.Context(), anna, op.ID, operate.Change{State: operate.OperationPaused})
				case 3, 4:
					_, _ = s.Change(t.Context(), anna, op.ID, operate.Change{State: operate.OperationRunning})
				case 5: // another steps in
					w.mu.Lock()
					_ = w.apply(tasks[(i*7)%n], core.Event{Kind: core.EventResubmit, Actor: "olga"})
					w.mu.Unlock()
				default:
					pass(time.Duration(turn) * 40 * time.Millisecond)
				}
			}
			for {
				got, _ := w.reaches(op.ID, "an end", func(op *operate.Operation) bool { return op.State != operate.OperationRunning })
				if got.State == operate.OperationDone {
					break
				}
				if _, err := s.Change(t.Context(), anna, op.ID, operate.Change{State: operate.OperationRunning}); err != nil {
					rt.Fatalf("resume: %v", err)
				}
			}
			stop()
			got, _ := w.op(op.ID)
			if got.Tally.Waiting+got.Tally.Asked != 0 || got.Tally.Total() != int64(n) {
				rt.Fatalf("done with %+v of %d", got.Tally, n)
			}
			for i, tk := range tasks {
				if tk.asked(op.ID) > 1 {
					rt.Fatalf("task %d was asked for %d times", i, tk.asked(op.ID))
				}
			}
		})
	})
}

// covers: OP2
func TestJudge(t *testing.T) {
	m := &operate.Member{Seq: 5, Step: "pay"}
	type s = operate.Standing
	undo := operate.Request{Action: operate.ActionUndo}
	resolve := operate.Request{Action: operate.ActionResolve, As: core.StateUndone}
	for _, test := range []struct {
		name string
		r    operate.Request
		s    s
		want operate.Outcome
	}{
		{"still", resubmit, s{Seq: 5, State: core.StateError}, operate.OutcomeAsked},
		{"still by its row, and asked by its journal", resubmit, s{Seq: 5, State: core.StateError, Asked: true, Passed: true}, operate.OutcomeAsked},
		{"forgotten", resubmit, s{Missing: true}, operate.OutcomeSkipped},
		{"changed by another", resubmit, s{Seq: 9, State: core.StateProcessed, Passed: true}, operate.OutcomeSkipped},
		{"runs", resubmit, s{Seq: 6, State: core.StateProcessing, Asked: true}, operate.OutcomeAsked},
		{"parked", resubmit, s{Seq: 6, State: core.StatePending, Asked: true}, operate.OutcomeAsked},
		{"passed", resubmit, s{Seq: 7, State: core.StateProcessing, Asked: true, Passed: true}, operate.OutcomeDone},
		{"passed, and failed later on", resubmit, s{Seq: 9, State: core.StateError, Asked: true, Passed: true}, operate.OutcomeDone},
		{"has ended", resubmit, s{Seq: 9, State: core.StateProcessed, Asked: true}, operate.OutcomeDone},
		{"failed again", resubmit, s{Seq: 9, State: core.StateError, Asked: true}, operate.OutcomeFailedAgain},
		{"is undone for it", resubmit, s{Seq: 9, State: core.StateUndoing, Asked: true}, operate.OutcomeAsked},
		{"was undone for it", resubmit, s{Seq: 9, State: core.StateUndone, Asked: true}, operate.OutcomeFailedAgain},
		{"undo runs", undo, s{Seq: 6, State: core.StateUndoing, Asked: true}, operate.OutcomeAsked},
		{"undo has ended", undo, s{Seq: 8, State: core.StateUndone, Asked: true}, operate.OutcomeDone},
		{"undo gave up", undo, s{Seq: 8, State: core.StateError, Asked: true}, operate.OutcomeFailedAgain},
		{"resolved", resolve, s{Seq: 6, State: core.StateUndone, Asked: true}, operate.OutcomeDone},
		{"resolved, and something else", resolve, s{Seq: 7, State: core.StateProcessing, Asked: true}, operate.OutcomeFailedAgain},
	} {
		v := judge(&test.r, m, &test.s)
		if v.outcome != test.want || v.still != strings.HasPrefix(test.name, "still") {
			t.Errorf("%s: %+v, want %s", test.name, v, test.want)
		}
		if (v.outcome == operate.OutcomeSkipped || v.outcome == operate.OutcomeFailedAgain) && v.text == "" {
			t.Errorf("%s: no text", test.name)
		}
	}
}

// An expired preview is forgotten by the runner.
//
// covers: OP3
func TestExpiredPreviewsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tasks := w.failing(core.PolicyError, 3, "card declined")
		p, err := w.service().Preview(t.Context(), anna, operate.Selection{Group: groupOf(tasks[0])}, resubmit)
		if err != nil {
			t.Fatal(err)
		}
		defer w.runner(t.Context(), config())()
		pass(operate.PreviewFor + 2*time.Minute)
		if _, err := w.service().Show(t.Context(), p.Token); refusal(t, err).Code != 404 {
			t.Errorf("%v", err)
		}
	})
}

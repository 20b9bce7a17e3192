package drone

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

// engineDuly is Doors, Tasks and Deliveries over an engine.
type engineDuly struct {
	e         *dulytest.Engine
	flow      *Workflow
	inputs    map[string]json.RawMessage
	withdrawn map[string]string // ids that were cancelled before they came, and why
}

func (d *engineDuly) Submit(_ context.Context, r *Request) (string, error) {
	return submitTo(d, d.flow.Plan, r.DeliveryID, *r)
}

func (d *engineDuly) Reschedule(_ context.Context, r *Reschedule) (string, error) {
	return submitTo(d, d.flow.Rescheduling.Plan, r.id(), *r)
}

func submitTo[In any](d *engineDuly, plan *duly.Plan[In], id string, input In) (string, error) {
	data, err := json.Marshal(input)
	if err != nil {
		return "", err
	}
	if stored, ok := d.inputs[id]; ok && string(stored) != string(data) || d.withdrawn[id] != "" {
		return "", &DoorError{http.StatusConflict, "taken"}
	}
	d.inputs[id] = data
	dulytest.Submit(d.e, plan, id, input)
	return "0.1", nil
}

// Cancel stores the request; that it is stale is no error of a door.
func (d *engineDuly) Cancel(_ context.Context, id, reason string) error {
	t := d.e.Task(id)
	switch {
	case d.withdrawn[id] != "":
		return nil
	case t == nil:
		return &DoorError{http.StatusNotFound, "no such task"}
	case t.State() == StateProcessed:
		return &DoorError{http.StatusConflict, "too late to cancel"}
	}
	_ = d.e.Cancel(id, reason)
	return nil
}

func (d *engineDuly) Withdraw(ctx context.Context, id, reason string) error {
	if d.e.Task(id) != nil || d.withdrawn[id] != "" {
		return d.Cancel(ctx, id, reason)
	}
	d.withdrawn[id] = reason
	return nil
}

func (*engineDuly) Probe(context.Context) error { return nil }

func (d *engineDuly) Task(_ context.Context, typ, id, _ string) (Task, error) {
	t := d.e.Task(id)
	switch {
	case typ == Type && d.withdrawn[id] != "":
		return Task{State: StateUndone, Reason: d.withdrawn[id]}, nil
	case t == nil || (typ == Type) == strings.HasPrefix(id, TypeReschedule):
		return Task{}, ErrNoTask
	}
	task := Task{State: string(t.State()), Reason: t.Reason(), Input: d.inputs[id]}
	if slices.Contains(t.Trail(), "account refused") {
		task.FailedStep = StepAccount.String()
	}
	return task, nil
}

func (d *engineDuly) Delivery(ctx context.Context, id string) (Task, error) {
	return d.Task(ctx, Type, id, "")
}

const later = `{"pickupTime":"2030-01-31T09:30:00Z","deadline":"2030-02-01T09:30:00Z"}`

func newEngineDuly(t *testing.T, faults Faults) (*engineDuly, *Services, *Face) {
	t.Helper()
	all := newServices(t, ServiceOptions{Seed: 7, Faults: faults})
	w := NewWorkflow(QuickPlan())
	agent, err := NewAgent(nil, w, all)
	d := &engineDuly{flow: w, inputs: map[string]json.RawMessage{}, withdrawn: map[string]string{}}
	if err == nil {
		err = w.Rescheduling.Serve(agent, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.e = dulytest.NewEngine(t, agent)
	return d, all, NewFace(FaceOptions{Doors: d, Tasks: d})
}

// deliver hands a delivery in.
func (d *engineDuly) deliver(t *testing.T, id string) *dulytest.Task {
	t.Helper()
	r := NewGenerator(7).Request(0)
	r.DeliveryID = id
	if _, err := d.Submit(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
	return d.e.Task(id)
}

// wantCode asks, and reports another code, or a body without a text.
func wantAnswer(t *testing.T, face *Face, method, id, body string, code int, text string) {
	t.Helper()
	if w := ask(face, method, requests+"/"+id, body); w.Code != code || !strings.Contains(w.Body.String(), text) {
		t.Errorf("%s %s: %d %s, want %d %s", method, id, w.Code, w.Body, code, text)
	}
}

// check holds the books of the services against the engine.
func (d *engineDuly) check(t *testing.T, all *Services) Report {
	t.Helper()
	var ids []string
	states := map[string]string{}
	for id := range d.inputs {
		if !strings.HasPrefix(id, TypeReschedule) {
			ids, states[id] = append(ids, id), string(d.e.Task(id).State())
		}
	}
	report := all.Books().Check(ids, OutcomesOf(states))
	if !report.Clean() {
		t.Errorf("report %+v", report)
	}
	return report
}

// Deliveries are rescheduled at every point of their lives, with faults and with a server that crashes meanwhile: each
// has a successor when it is undone for it, and none when it is not.
//
// covers: D3, T9
func TestPatchLosesAndDoublesNothing(t *testing.T) {
	d, all, face := newEngineDuly(t, Faults{Refused: 0.05, Transient: 0.15})
	g := NewGenerator(7)
	const deliveries = 60
	accepted := map[string]bool{}
	for i := range deliveries {
		r := g.Request(i)
		if _, err := d.Submit(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
		d.e.Advance(time.Duration(i%12) * time.Millisecond)
		first := ask(face, "PATCH", requests+"/"+r.DeliveryID, later)
		if i%4 == 0 {
			d.e.Restart()
		}
		again := ask(face, "PATCH", requests+"/"+r.DeliveryID, later)
		if again.Code != first.Code || first.Code != http.StatusAccepted && first.Code != http.StatusConflict {
			t.Errorf("delivery %d: %d %s, then %d %s", i, first.Code, first.Body, again.Code, again.Body)
		}
		accepted[r.DeliveryID] = first.Code == http.StatusAccepted
		wantAnswer(t, face, "PATCH", r.DeliveryID, `{"pickupLocation":"elsewhere"}`, http.StatusConflict, "")
	}
	d.e.Run()
	moved, late := 0, 0
	for id, accepted := range accepted {
		old, next := d.e.Task(id), d.e.Task(id+"-r1")
		switch rescheduling := d.e.Task(rescheduleID(id + "-r1")); {
		case !accepted && rescheduling == nil && next == nil, accepted && rescheduling.State() == StateUndone && next == nil:
			late++
		case accepted && rescheduling.State() == StateProcessed && next != nil && old.State() == StateUndone:
			moved++
		default:
			t.Errorf("delivery %s is %s: accepted %v, successor %v", id, old.State(), accepted, next != nil)
		}
	}
	if report := d.check(t, all); report.Accepted != deliveries+moved {
		t.Errorf("report %+v", report)
	}
	if moved == 0 || late == 0 {
		t.Errorf("%d rescheduled, %d too late: want both", moved, late)
	}
}

// Of two changes at once Duly takes the first.
func TestTwoChangesAtOnce(t *testing.T) {
	d, all, face := newEngineDuly(t, FaultsNone)
	d.deliver(t, "a")
	for _, other := range []bool{false, true} { // a face that has not seen the other's, too
		wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, `"deliveryId":"a-r1"`)
		if other {
			face.tasks = only{d, Type}
		}
		wantAnswer(t, face, "PATCH", "a", `{"pickupLocation":"elsewhere"}`, http.StatusConflict, "")
	}
	d.e.Run()
	if report := d.check(t, all); report.Processed != 1 || report.Undone != 1 {
		t.Errorf("report %+v", report)
	}
}

// only are the tasks of one type.
type only struct {
	*engineDuly
	typ string
}

func (o only) Task(ctx context.Context, typ, id, after string) (Task, error) {
	if typ != o.typ {
		return Task{}, ErrNoTask
	}
	return o.engineDuly.Task(ctx, typ, id, after)
}

// After the 202 neither caller nor face is needed: the successor comes although server and agent are away between any
// two steps.
func TestSuccessorComesAfterRestarts(t *testing.T) {
	d, all, face := newEngineDuly(t, FaultsNone)
	steps := d.flow.Rescheduling
	old := d.deliver(t, "a")
	d.e.On(d.flow.Drone).Task("a").Unserved() // it is not carried out meanwhile
	wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, `"deliveryId":"a-r1"`)
	task := d.e.Task(rescheduleID("a-r1"))
	for _, step := range []duly.Named{steps.Cancel, steps.Undone, steps.Successor} {
		away := d.e.On(step).Unserved()
		d.e.Advance(40 * time.Second) // the longest pause between two looks for an agent is over
		if away.Used() == 0 || d.e.Task("a-r1") != nil {
			t.Fatalf("step %s: %v, successor %v, trail %v", step.Name(), away, d.e.Task("a-r1") != nil, task.Trail())
		}
		d.e.Restart()
		if step != duly.Named(steps.Cancel) {
			old.WantState(duly.StateUndone)
		}
		wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, `"state":"rescheduling"`)
		away.Stop()
	}
	d.e.Run()
	task.WantProcessed()
	wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, `"state":"processed"`)
	wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, `"deliveryId":"a-r1"`)
	wantAnswer(t, face, "PATCH", "a-r1", `{"pickupLocation":"elsewhere"}`, http.StatusConflict, "carried out")
	face.tasks = only{d, TypeReschedule} // as long as the successor is not in the table
	wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, `"state":"pending"`)
	if report := d.check(t, all); report.Processed != 1 || report.Undone != 1 {
		t.Errorf("report %+v", report)
	}
}

// A delivery that ends otherwise before it is cancelled has no successor, and GET says why.
func TestTooLateForASuccessor(t *testing.T) {
	suspended := duly.RefuseCode(http.StatusForbidden, errors.New("suspended"))
	for name, c := range map[string]struct {
		meanwhile func(d *engineDuly)
		want      string
	}{
		"carried out": {func(*engineDuly) {}, "too late"},
		"deleted":     {func(d *engineDuly) { _ = d.e.Cancel("a", byClient) }, "cancelled by the client"},
		"failed":      {func(d *engineDuly) { d.e.On(d.flow.Account).Fail(suspended) }, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			d, all, face := newEngineDuly(t, FaultsNone)
			d.deliver(t, "a")
			away := d.e.On(d.flow.Rescheduling.Cancel).Unserved()
			wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, "a-r1")
			c.meanwhile(d)
			d.e.Advance(10 * time.Second)
			away.Stop()
			d.e.Run()
			wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, `"state":"undone"`)
			wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, c.want)
			wantAnswer(t, face, "PATCH", "a", later, http.StatusConflict, c.want)
			if report := d.check(t, all); report.Accepted != 1 {
				t.Errorf("report %+v", report)
			}
		})
	}
}

// The reason stays while the undo is in trouble; the successor waits for it, and the same PATCH is the same.
func TestUndoInTrouble(t *testing.T) {
	d, all, face := newEngineDuly(t, FaultsNone)
	old := d.deliver(t, "a")
	slow := d.e.On(d.flow.Drone).Takes(100 * time.Millisecond)
	d.e.Advance(50 * time.Millisecond)
	broken := d.e.On(d.flow.Drone).Undo().Fail(errors.New("no radio"))
	wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, "a-r1")
	d.e.Advance(10 * time.Minute)
	if old.State() != duly.StateUndoing || !strings.Contains(old.Reason(), "a-r1") {
		t.Errorf("the undo is not in trouble, or hides why: %s, %s", old.State(), old.Reason())
	}
	wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, "a-r1")
	wantAnswer(t, face, "PATCH", "a", `{"pickupLocation":"elsewhere"}`, http.StatusConflict, "otherwise")
	wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, `"state":"rescheduling"`)
	d.e.Advance(25 * time.Hour) // the undo gives up, and an operator is needed
	old.WantState(duly.StateError)
	wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, `"state":"rescheduling"`)
	broken.Stop()
	slow.Stop()
	if err := d.e.Undo("a", "the radio is mended"); err != nil {
		t.Fatal(err)
	}
	d.e.Run()
	old.WantState(duly.StateUndone)
	d.e.Task("a-r1").WantProcessed()
	d.check(t, all)
}

// A delivery that needs an operator is not cancelled.
func TestNoSuccessorOfAnError(t *testing.T) {
	d, _, face := newEngineDuly(t, FaultsNone)
	old := d.deliver(t, "a")
	d.e.On(d.flow.Drone).Fail(duly.RefuseCode(http.StatusForbidden, errors.New("no drones today")))
	d.e.On(d.flow.Package).Undo().Fail(duly.RefuseCode(http.StatusForbidden, errors.New("sealed")))
	away := d.e.On(d.flow.Rescheduling.Cancel).Unserved()
	wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, "a-r1")
	d.e.Advance(time.Minute)
	old.WantState(duly.StateError)
	away.Stop()
	d.e.Run()
	wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, "needs an operator")
	old.WantState(duly.StateError)
	d.deliver(t, "b")
	d.e.Advance(time.Minute)
	wantAnswer(t, face, "PATCH", "b", later, http.StatusConflict, "needs an operator")
}

// A successor that is deleted before it is there never comes.
func TestDeleteOfASuccessorToCome(t *testing.T) {
	d, all, face := newEngineDuly(t, FaultsNone)
	old := d.deliver(t, "a")
	wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, "a-r1")
	wantAnswer(t, face, "PATCH", "a-r1", later, http.StatusConflict, "once it is there")
	wantAnswer(t, face, "DELETE", "a-r2", "", http.StatusNotFound, "")
	for range 2 {
		wantAnswer(t, face, "DELETE", "a-r1", "", http.StatusNoContent, "")
	}
	d.e.Advance(time.Minute)
	old.WantState(duly.StateUndone)
	d.e.Task(rescheduleID("a-r1")).WantState(duly.StateUndone) // at once: nothing else will come of it
	wantAnswer(t, face, "GET", "a-r1", "", http.StatusOK, "cancelled by the client")
	wantAnswer(t, face, "PATCH", "a", later, http.StatusConflict, "not rescheduled")
	if report := d.check(t, all); d.e.Task("a-r1") != nil || report.Undone != 1 {
		t.Errorf("report %+v", report)
	}
}

// The undo of a rescheduling takes its successor back, and leaves alone what another has under the id.
func TestUndoOfARescheduling(t *testing.T) {
	d, all, face := newEngineDuly(t, FaultsNone)
	d.deliver(t, "a")
	stuck := d.e.On(d.flow.Account).Task("a-r1").Unserved()
	d.e.On(d.flow.Rescheduling.Successor).Lost()
	wantAnswer(t, face, "PATCH", "a", later, http.StatusAccepted, "a-r1")
	d.e.Advance(2 * time.Second)
	next := d.e.Task("a-r1")
	if next == nil {
		t.Fatal("no successor")
	}
	task := d.e.Task(rescheduleID("a-r1"))
	if err := d.e.Cancel(task.ID(), "no more"); err != nil {
		t.Fatal(err)
	}
	d.e.Advance(time.Hour)
	task.WantState(duly.StateUndone)
	next.WantState(duly.StateUndone)
	stuck.Stop()

	b := d.deliver(t, "b-r1")
	d.e.Run()
	b.WantProcessed()
	steps := rescheduler{d}
	mine := duly.Undo[Reschedule, Rescheduled]{Call: duly.Call[Reschedule]{Input: Reschedule{DeliveryID: "b", Next: Request{DeliveryID: "b-r1"}}}}
	if err := steps.withdraw(t.Context(), mine); err != nil || b.State() != StateProcessed {
		t.Errorf("another's delivery: %v, %s", err, b.State())
	}
	d.check(t, all)
}

// The step that submits the successor is safe to be called again, out of order and too late.
func TestSuccessorTwice(t *testing.T) {
	d, all, _ := newEngineDuly(t, FaultsNone)
	steps := rescheduler{d}
	call := func(id string) duly.Call[Reschedule] {
		next := NewGenerator(7).Request(0)
		next.DeliveryID = id
		return duly.Call[Reschedule]{Input: Reschedule{DeliveryID: "a", Next: next}}
	}
	undo := func(id string) error {
		return steps.withdraw(t.Context(), duly.Undo[Reschedule, Rescheduled]{Call: call(id)})
	}
	for range 2 {
		if made, err := steps.submit(t.Context(), call("a-r1")); err != nil || made.DeliveryID != "a-r1" {
			t.Errorf("do: %+v %v", made, err)
		}
	}
	_ = undo("a-r1") // it goes on
	d.e.Run()
	if err := undo("a-r1"); err != nil {
		t.Errorf("undo again: %v", err)
	}
	d.e.Task("a-r1").WantState(duly.StateUndone)
	_ = undo("b-r1") // before its do
	if err := undo("b-r1"); err != nil {
		t.Errorf("undo first: %v", err)
	}
	if _, err := steps.submit(t.Context(), call("b-r1")); err == nil || d.e.Task("b-r1") != nil {
		t.Errorf("a do behind its undo: %v", err)
	}
	d.check(t, all)
}

func TestPatchRefuses(t *testing.T) {
	d, _, face := newEngineDuly(t, FaultsNone)
	r := NewGenerator(7).Request(0)
	r.DeliveryID = "a"
	if _, err := d.Submit(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
	taken := r
	taken.DeliveryID = "a-r1"
	if _, err := d.Submit(t.Context(), &taken); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id, body string
		code     int
		want     string
	}{
		{"a", `{}`, 400, "no change"},
		{"a", `{"ownerId":"x"}`, 400, "ownerId"},
		{"a", `{"pickupTime":"soon"}`, 400, "pickupTime"},
		{"unknown", later, 404, "no such delivery"},
	} {
		if w := ask(face, "PATCH", requests+"/"+c.id, c.body); w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s", c.id, c.body, w.Code, w.Body)
		}
	}
	b := r
	b.DeliveryID = "b"
	bNext := r
	bNext.DeliveryID = "b-r1"
	for _, each := range []*Request{&bNext, &b} {
		if _, err := d.Submit(t.Context(), each); err != nil {
			t.Fatal(err)
		}
	}
	if w := ask(face, "PATCH", requests+"/b", later); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "taken by another") {
		t.Errorf("taken: %d %s", w.Code, w.Body)
	}
	if d.e.Run(); d.e.Task("b").State() != StateProcessed {
		t.Errorf("b is %s, want it untouched", d.e.Task("b").State())
	}
	d.deliver(t, "c")
	wantAnswer(t, face, "DELETE", "c", "", http.StatusNoContent, "")
	wantAnswer(t, face, "PATCH", "c", later, http.StatusConflict, "already, so it is not rescheduled: "+byClient)
	for id, want := range map[string]string{"a": "a-r1", "a-r1": "a-r2", "a-r01": "a-r01-r1", "-r1": "-r1-r1"} {
		if got := successor(id); got != want {
			t.Errorf("successor of %s is %s, want %s", id, got, want)
		}
	}
}

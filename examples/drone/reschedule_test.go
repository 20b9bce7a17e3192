package drone

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/dulytest"
)

// engineDuly is doors and tasks over an engine, in which time passes as it is looked at.
type engineDuly struct {
	e      *dulytest.Engine
	flow   *Workflow
	inputs map[string]Request
	err    error // of the next submission
}

func (d *engineDuly) Submit(_ context.Context, r *Request) (string, error) {
	if err := d.err; err != nil {
		d.err = nil
		return "", err
	}
	if stored, ok := d.inputs[r.DeliveryID]; ok && stored != *r {
		return "", &DoorError{http.StatusConflict, "taken"}
	}
	d.inputs[r.DeliveryID] = *r
	dulytest.Submit(d.e, d.flow.Plan, r.DeliveryID, *r)
	return "0.1", nil
}

// Cancel stores the request; that it is stale is no error of a door.
func (d *engineDuly) Cancel(_ context.Context, id, reason string) error {
	_ = d.e.Cancel(id, reason)
	return nil
}

func (*engineDuly) Probe(context.Context) error { return nil }

func (d *engineDuly) Task(_ context.Context, id, _ string) (Task, error) {
	t := d.e.Task(id)
	if t == nil {
		return Task{}, ErrNoTask
	}
	input, err := json.Marshal(d.inputs[id])
	task := Task{State: string(t.State()), Reason: t.Reason(), Input: input}
	if t.State() == stateUndoing {
		d.e.Advance(time.Second)
	}
	return task, err
}

const later = `{"pickupTime":"2030-01-31T09:30:00Z","deadline":"2030-02-01T09:30:00Z"}`

func newEngineDuly(t *testing.T, faults Faults) (*engineDuly, *Services, *Face) {
	t.Helper()
	all := newServices(t, ServiceOptions{Seed: 7, Faults: faults})
	w := NewWorkflow(QuickPlan())
	agent, err := NewAgent(nil, w, all)
	if err != nil {
		t.Fatal(err)
	}
	d := &engineDuly{e: dulytest.NewEngine(t, agent), flow: w, inputs: map[string]Request{}}
	return d, all, NewFace(FaceOptions{Doors: d, Tasks: d})
}

// Deliveries are rescheduled at every point of their lives, twice each, and the first successor is not stored at once.
func TestPatchLosesAndDoublesNothing(t *testing.T) {
	d, all, face := newEngineDuly(t, Faults{Refused: 0.05, Transient: 0.15})
	g := NewGenerator(7)
	moved, late := 0, 0
	for i := range 60 {
		r := g.Request(i)
		if _, err := d.Submit(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
		d.e.Advance(time.Duration(i%12) * time.Millisecond)
		d.err = &DoorError{http.StatusServiceUnavailable, "no node"}
		at := requests + "/" + r.DeliveryID
		first := ask(face, "PATCH", at, later)
		d.err = nil
		again, other := ask(face, "PATCH", at, later), ask(face, "PATCH", at, `{"pickupLocation":"elsewhere"}`)
		if other.Code != http.StatusConflict {
			t.Errorf("another change: %d %s", other.Code, other.Body)
		}
		next := d.e.Task(r.DeliveryID + "-r1")
		switch {
		case first.Code == http.StatusInternalServerError && again.Code == http.StatusAccepted && next != nil:
			moved++
		case first.Code == http.StatusConflict && again.Code == http.StatusConflict && next == nil:
			late++
		default:
			t.Errorf("delivery %d: %d %s, then %d %s, successor %v", i, first.Code, first.Body, again.Code, again.Body, next != nil)
		}
	}
	d.e.Run()
	var ids []string
	states := map[string]string{}
	for id := range d.inputs {
		ids, states[id] = append(ids, id), string(d.e.Task(id).State())
	}
	if report := all.Books().Check(ids, OutcomesOf(states)); !report.Clean() || report.Accepted != 60+moved {
		t.Errorf("report %+v", report)
	}
	if moved == 0 || late == 0 {
		t.Errorf("%d rescheduled, %d too late: want both", moved, late)
	}
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
	for id, want := range map[string]string{"a": "a-r1", "a-r1": "a-r2", "a-r01": "a-r01-r1", "-r1": "-r1-r1"} {
		if got := successor(id); got != want {
			t.Errorf("successor of %s is %s, want %s", id, got, want)
		}
	}
}

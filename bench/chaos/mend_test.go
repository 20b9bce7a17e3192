package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
)

// An outage shuts one step of one task, notes the calls of those that are watched, and lets undos pass.
func TestOutage(t *testing.T) {
	var o outage
	ask := func(task string, step drone.Step, undo bool) *drone.ServiceError {
		return o.meets(&Ask{Step: step, Undo: undo, Call: drone.Call{Task: task}})
	}
	o.close(drone.StepDrone, "shut", "a", "b")
	o.watch("a")
	for _, c := range []struct {
		task string
		step drone.Step
		undo bool
		shut bool
	}{
		{"a", drone.StepDrone, false, true}, {"a", drone.StepDrone, true, false}, {"a", drone.StepPackage, false, false}, {"c", drone.StepDrone, false, false},
	} {
		if got := ask(c.task, c.step, c.undo); (got != nil) != c.shut || got != nil && (got.Code != shutCode || got.Reason != "shut") {
			t.Errorf("%+v: %v", c, got)
		}
	}
	o.open("a")
	if ask("a", drone.StepDrone, false) != nil || ask("b", drone.StepDrone, false) == nil {
		t.Error("a was opened, and b was not")
	}
	if !o.wasCalled("a", drone.StepPackage) || o.wasCalled("a", drone.StepDelivery) || o.wasCalled("b", drone.StepDrone) {
		t.Error("calls are not noted as they were")
	}
}

// The failures of each plant are a group of their own.
func TestWords(t *testing.T) {
	w, seen := &world{}, map[string]bool{}
	for range 500 {
		words := w.words()
		f := schema.FailureFingerprint(&core.Task{State: core.StateError, FailedStep: 1, Why: words})
		if seen[f] {
			t.Fatalf("%q has the fingerprint of another", words)
		}
		seen[f] = true
	}
}

// The tasks that operators act on have a plan that can be stored, and ids of their own.
func TestMends(t *testing.T) {
	l := &load{requests: drone.NewGenerator(1)}
	for _, id := range idsOf(l.mends(3)) {
		if !strings.HasPrefix(id, mendType+"-") || core.CheckName("id", id) != nil {
			t.Errorf("id %s", id)
		}
	}
}

func TestOnlyOperators(t *testing.T) {
	for topology, least := range map[topology]int{single: 12, devOnly: 7} {
		list := fitting(topology, onlyOperators)
		if len(list) < least {
			t.Errorf("%d kinds hit what operators do, want %d", len(list), least)
		}
		for _, k := range list {
			if !k.operators {
				t.Errorf("%s is among them", k.name)
			}
		}
	}
	if _, err := parse([]string{"-only", "operators"}); err != nil {
		t.Error(err)
	}
}

// A receiver that is away takes nothing; one that is there knows which tasks alerts were about.
func TestReceiver(t *testing.T) {
	r, err := newReceiver()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	post := func() int {
		resp, err := http.Post("http://"+r.listener.Addr().String(), "application/json", strings.NewReader(`{"id":"1","data":{"name":"task-error","more":{"task":"t1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	r.setAway(true)
	if got := post(); got != http.StatusServiceUnavailable || r.knows("t1") {
		t.Errorf("away: %d, knows %v", got, r.knows("t1"))
	}
	r.setAway(false)
	if got := post(); got != http.StatusOK || !r.knows("t1") || r.knows("t2") || r.all != 1 {
		t.Errorf("there: %d, %+v", got, r.told)
	}
}

// A reader counts what it is told and knows where it stands.
func TestReader(t *testing.T) {
	var last string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.Header.Get("Last-Event-ID")
		if r.URL.Path == "/full" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte("retry: 2000\n\nid: 7\nevent: task\ndata: {\"id\":\"t1\",\"status\":\"undone\"}\n\n: alive\n\nid: 8\nevent: task\ndata: {\"id\":\"t2\"}\n\n"))
	}))
	defer server.Close()
	r, status, err := openReader(t.Context(), server.Client(), server.URL, "/events", "6")
	if err != nil || status != http.StatusOK || last != "6" {
		t.Fatalf("%d %v, after %q", status, err, last)
	}
	r.read()
	if err := r.resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if r.last != "8" || !r.seen["t1"] || !r.seen["t2"] || r.count() != 2 {
		t.Errorf("%+v", r)
	}
	if r, status, err := openReader(t.Context(), server.Client(), server.URL, "/full", ""); r != nil || status != http.StatusTooManyRequests || err != nil {
		t.Errorf("%v %d %v", r, status, err)
	}
}

// What an operation says of a task is held against its row, its journal and the ledgers.
func TestContradictions(t *testing.T) {
	services, err := drone.NewServices(drone.ServiceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"made", "kept"} {
		if _, err := services.Do(t.Context(), drone.StepDrone, drone.Call{Task: id, Key: id + "/drone/0", Attempt: 1}); err != nil {
			t.Fatal(err)
		}
	}
	passed := []core.StepView{{Name: "drone", Status: core.StepDone.String()}}
	row := func(by string) core.Record { return core.Record{Seq: 5, Actor: operate.OperationActor(by)} }
	const (
		done, again, skipped, asked, waiting = operate.OutcomeDone, operate.OutcomeFailedAgain, operate.OutcomeSkipped, operate.OutcomeAsked, operate.OutcomeWaiting
	)
	for _, c := range []struct {
		name     string
		action   operate.Action
		v        core.View
		rows     []core.Record
		by       []string
		outcomes []operate.Outcome
		wrong    bool
	}{
		{"done", operate.ActionResubmit, core.View{ID: "made", State: core.StateProcessed, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{done}, false},
		{"done, and failed later", operate.ActionResubmit, core.View{ID: "made", State: core.StateError, Steps: passed, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{done}, false},
		{"done, and has not passed", operate.ActionResubmit, core.View{ID: "made", State: core.StateError, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{done}, true},
		{"done, and no service knows", operate.ActionResubmit, core.View{ID: "none", State: core.StateProcessed, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{done}, true},
		{"done twice", operate.ActionResubmit, core.View{ID: "made", State: core.StateProcessed, Seq: 9}, []core.Record{row("a"), row("a")}, []string{"a"}, []operate.Outcome{done}, true},
		{"done by another hand", operate.ActionResubmit, core.View{ID: "made", State: core.StateProcessed, Seq: 9}, []core.Record{row("b")}, []string{"a"}, []operate.Outcome{done}, true},
		{"undone", operate.ActionUndo, core.View{ID: "none", State: core.StateUndone, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{done}, false},
		{"undone, and an effect stands", operate.ActionUndo, core.View{ID: "kept", State: core.StateUndone, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{done}, true},
		{"being undone", operate.ActionUndo, core.View{ID: "none", State: core.StateUndoing, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{done}, true},
		{"failed again", operate.ActionResubmit, core.View{ID: "none", State: core.StateError, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{again}, false},
		{"failed again, and is processed", operate.ActionResubmit, core.View{ID: "made", State: core.StateProcessed, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{again}, true},
		{"asked for ever", operate.ActionResubmit, core.View{ID: "none", State: core.StateError, Seq: 4}, nil, []string{"a"}, []operate.Outcome{asked}, true},
		{"waits", operate.ActionResubmit, core.View{ID: "none", State: core.StateError, Seq: 4}, nil, []string{"a"}, []operate.Outcome{waiting}, false},
		{"waits, and was touched", operate.ActionResubmit, core.View{ID: "none", State: core.StateError, Seq: 9}, nil, []string{"a"}, []operate.Outcome{waiting}, true},
		{"skipped, and was asked", operate.ActionResubmit, core.View{ID: "none", State: core.StateError, Seq: 9}, []core.Record{row("a")}, []string{"a"}, []operate.Outcome{skipped}, true},
		{"of two one", operate.ActionResubmit, core.View{ID: "made", State: core.StateProcessed, Seq: 9}, []core.Record{row("b")}, []string{"a", "b"}, []operate.Outcome{skipped, done}, false},
		{"of two both", operate.ActionResubmit, core.View{ID: "made", State: core.StateProcessed, Seq: 9}, []core.Record{row("a"), row("b")}, []string{"a", "b"}, []operate.Outcome{done, done}, true},
		{"no member", operate.ActionResubmit, core.View{ID: "none", State: core.StateError, Seq: 4}, nil, []string{"a"}, nil, true},
	} {
		r := &repair{w: &world{services: services}, action: c.action, step: drone.StepDrone, by: c.by, frozen: map[string]int64{c.v.ID: 4}}
		if wrong := r.contradictions(&c.v, c.rows, c.outcomes); (len(wrong) > 0) != c.wrong {
			t.Errorf("%s: %q", c.name, wrong)
		}
	}
}

// What became wrong of operators' work is a promise that was broken.
func TestWrongIsNotClean(t *testing.T) {
	r := &report{}
	if !r.clean() {
		t.Error("an empty round is not clean")
	}
	r.Wrong = 1
	if r.clean() {
		t.Error("a round with wrong columns is clean")
	}
}

package dev_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const barePlan = `{"name":"delivery","version":1,"grace_ms":100,"steps":[
	{"name":"reserve","agent":"bare.reserve","undoable":true,"complete_by_ms":2000,"backoff_ms":20},
	{"name":"ship","agent":"bare.ship","undoable":true,"complete_by_ms":2000,"backoff_ms":20}]}`

// TestBareNATS uses Duly with nats.go alone: what any language can do.
//
// covers: S6, S7, S17, S26
func TestBareNATS(t *testing.T) {
	w := start(t)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))

	t.Run("fast door answers as a PubAck", func(t *testing.T) { bareFastDoor(t, w.in(t)) })
	t.Run("plain door runs", func(t *testing.T) {
		w := w.in(t)
		ack, err := w.js.Publish("duly.in.delivery.x2", []byte(`{"n":2}`))
		if err != nil {
			t.Fatal(err)
		}
		if ack.Stream != "DULY_TASKS" || ack.Sequence == 0 {
			t.Errorf("ack %+v", ack)
		}
		w.ends("delivery", "x2", "processed")
	})
}

func bareFastDoor(t *testing.T, w *world) {
	var ack struct {
		Stream    string
		Seq       uint64
		Task      string
		Partition *int
		Error     any
	}
	answer := w.submit("delivery", "x1", `{"n":1}`, nil)
	if err := json.Unmarshal([]byte(answer), &ack); err != nil {
		t.Fatal(err)
	}
	if ack.Stream != "DULY_TASKS" || ack.Seq == 0 || ack.Task != "x1" || ack.Partition == nil || ack.Error != nil {
		t.Errorf("answer %s", answer)
	}
	v := w.ends("delivery", "x1", "processed")
	if len(v.Steps) != 2 || string(v.Steps[0].Result) != `{"receipt":"r-1"}` || string(v.Steps[1].Result) != `{"parcel":7}` {
		t.Errorf("steps %+v", v.Steps)
	}

	// The JetStream calls of nats.go take the answer for a stream's own.
	pub, err := w.js.Publish("duly.submit.delivery.x3", []byte(`{"n":3}`))
	if err != nil {
		t.Fatalf("js.Publish: %v", err)
	}
	if pub.Stream != "DULY_TASKS" || pub.Sequence == 0 {
		t.Errorf("js.Publish: %+v", pub)
	}
	js, err := jetstream.New(w.nc)
	if err != nil {
		t.Fatal(err)
	}
	future, err := js.PublishAsync("duly.submit.delivery.x4", []byte(`{"n":4}`))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case pub := <-future.Ok():
		if pub.Stream != "DULY_TASKS" || pub.Sequence == 0 {
			t.Errorf("PublishAsync: %+v", pub)
		}
	case err := <-future.Err():
		t.Fatalf("PublishAsync: %v", err)
	case <-time.After(patience):
		t.Fatal("PublishAsync: no answer")
	}
	if _, err := js.Publish(t.Context(), "duly.submit.nosuch.x5", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a refusal is %v, want an error that names the type", err)
	}
	w.ends("delivery", "x3", "processed")
	w.ends("delivery", "x4", "processed")
}

// TestBareAgentRefusesAndIsUndone: the code 422 of NATS's service errors is
// final, and what earlier steps did is undone.
//
// covers: I17, I20
func TestBareAgentRefusesAndIsUndone(t *testing.T) {
	w := start(t)
	w.plan(barePlan)
	var undone atomic.Pointer[string]
	var undos, ships atomic.Int64
	w.agent("bare.reserve", answers(`{"receipt":"r-2"}`), func(m *nats.Msg) {
		body := string(m.Data)
		undone.Store(&body)
		undos.Add(1)
		answers("")(m)
	})
	w.agent("bare.ship", func(m *nats.Msg) {
		ships.Add(1)
		refusal := nats.NewMsg(m.Reply)
		refusal.Header.Set("Nats-Service-Error", "no lorry")
		refusal.Header.Set("Nats-Service-Error-Code", "422")
		if err := m.RespondMsg(refusal); err != nil {
			t.Error(err)
		}
	}, answers(""))
	w.accepted("delivery", "r1", `{}`, nil)
	v := w.ends("delivery", "r1", "undone")
	if !strings.Contains(v.Reason, "no lorry") && !strings.Contains(v.Steps[1].Error, "no lorry") {
		t.Errorf("nothing says why: %+v", v)
	}
	if ships.Load() != 1 {
		t.Errorf("a refused step was tried %d times, want 1", ships.Load())
	}
	body := undone.Load()
	if undos.Load() != 1 || body == nil || !strings.Contains(*body, `"result":{"receipt":"r-2"}`) {
		t.Errorf("%d undos, the last %v, want one with the receipt", undos.Load(), body)
	}
}

// TestNoAgentServes: a step that no agent serves waits for one.
func TestNoAgentServes(t *testing.T) {
	w := start(t)
	w.plan(`{"name":"later","version":1,"steps":[{"name":"only","agent":"bare.later","undoable":false,"complete_by_ms":2000,"backoff_ms":20,"backoff_cap_ms":50}]}`)
	w.accepted("later", "n1", `{}`, nil)
	var v taskView
	w.until("the step is unserved", func() bool {
		var found bool
		v, found = w.task("later", "n1")
		return found && len(v.Steps) == 1 && strings.Contains(v.Steps[0].Error, "no agent listens on bare.later")
	})
	if v.State != "processing" {
		t.Errorf("state %s, want processing", v.State)
	}
	w.agent("bare.later", answers(`{}`), nil)
	w.ends("later", "n1", "processed")
}

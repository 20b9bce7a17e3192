package dev_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestUndoInTroubleIsTold: an undo that fails and goes on is told once by an alert, to who
// watches the task by a live status, and in its journal; one that gives up by another
// alert. The other steps are undone all the same.
//
// covers: C6
func TestUndoInTroubleIsTold(t *testing.T) {
	w := start(t)
	fails := func(code string) nats.MsgHandler {
		return func(msg *nats.Msg) {
			reply := nats.NewMsg(msg.Reply)
			reply.Header.Set("Nats-Service-Error-Code", code)
			reply.Header.Set("Nats-Service-Error", "the till is shut")
			if err := msg.RespondMsg(reply); err != nil {
				t.Error(err)
			}
		}
	}
	w.plan(`{"name":"trouble","version":1,"grace_ms":50,"steps":[
		{"name":"reserve","agent":"trouble.reserve","backoff_ms":1},
		{"name":"pay","agent":"trouble.pay","after":[],"backoff_ms":1,"undo_backoff_cap_ms":5,"undo_patience_ms":60000,"undo_complete_by_ms":1000},
		{"name":"ship","agent":"trouble.ship","after":["reserve","pay"],"undoable":false,"attempts_max":1}]}`)
	mended := make(chan struct{})
	w.agent("trouble.reserve", answers("1"), answers(""))
	w.agent("trouble.pay", answers("1"), func(msg *nats.Msg) {
		select {
		case <-mended:
			answers("")(msg)
		default:
			fails("500")(msg)
		}
	})
	w.agent("trouble.ship", fails("422"), fails("422"))
	live, err := w.nc.SubscribeSync("duly.live.trouble.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"u1", "u2"} { // they share a cause, and a line
		w.accepted("trouble", id, `{}`, nil)
	}
	told := func() int { return w.lines("alert=once name=undo-trouble") }
	w.until("the trouble is told", func() bool { return told() == 1 })
	seen := map[string]bool{}
	for len(seen) < 2 {
		msg, err := live.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(msg.Data); strings.Contains(text, "the undo of step pay is in trouble and goes on") {
			if seen[msg.Subject] {
				t.Errorf("told twice: %s", text)
			}
			seen[msg.Subject] = true
		}
	}
	w.until("the other step is undone meanwhile", func() bool {
		v, _ := w.task("trouble", "u1")
		return v.State == "undoing" && v.Steps[0].Status == "undone" && v.Steps[1].Status == "undoing"
	})
	close(mended)
	w.ends("trouble", "u1", "undone")
	w.ends("trouble", "u2", "undone")
	if n, failed := told(), w.lines("name=task-error")+w.lines("name=undo-exhausted"); n != 1 || failed != 0 {
		t.Errorf("%d alerts of trouble, want one, and %d of tasks in error", n, failed)
	}

	w.plan(`{"name":"lost","version":1,"grace_ms":50,"steps":[
		{"name":"reserve","agent":"lost.reserve","backoff_ms":1},
		{"name":"pay","agent":"lost.pay","after":[],"backoff_ms":1,"undo_attempts_max":2},
		{"name":"ship","agent":"trouble.ship","after":["reserve","pay"],"undoable":false,"attempts_max":1}]}`)
	w.agent("lost.reserve", answers("1"), answers(""))
	w.agent("lost.pay", answers("1"), fails("500"))
	w.accepted("lost", "l1", `{}`, nil)
	v := w.ends("lost", "l1", "error")
	if v.Steps[0].Status != "undone" || !strings.Contains(v.Reason, "the undo of step pay gave up") {
		t.Errorf("%+v", v)
	}
	w.until("it is told", func() bool { return w.lines("alert=once name=undo-exhausted") == 1 })
	if w.lines("task=l1") == 0 || told() != 1 {
		t.Error("the alert names no task, or an undo that gave up was told to go on")
	}
}

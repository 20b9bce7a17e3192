package dronehttp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/agents/httpagent"
)

const toldPlan = `{"name":"order","version":1,"grace_ms":100,"steps":[
	{"name":"begun","agent":"tell.user","complete_by_ms":5000},
	{"name":"work","agent":"bare.work","undoable":false,"complete_by_ms":5000},
	{"name":"done","agent":"tell.user","undoable":false,"complete_by_ms":5000,"on_exhausted":"skip"}]}`

// receiver is what tells a user: it fails once for each of its posts.
type receiver struct {
	mu    sync.Mutex
	calls map[string]int // by what was told
	keys  map[string]map[string]bool
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var told struct{ Task, End string }
	if err := json.NewDecoder(req.Body).Decode(&told); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	is := told.Task + " " + told.End
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[is]++; r.keys[is] == nil {
		r.keys[is] = map[string]bool{}
	}
	r.keys[is][req.Header.Get("Idempotency-Key")] = true
	if r.calls[is] == 1 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("{}"))
}

// TestUsersAreTold: a user hears by steps of the plan how a task ends: the last one says that it is done, and the undo of the
// first that it is not. What the receiver did not take is told again, by the same key.
//
// covers: I22
func TestUsersAreTold(t *testing.T) {
	w := &world{}
	w.serve(t)
	until(t, "the plan is applied", func() bool {
		answer, err := w.nc.Request("duly.plans.apply", []byte(toldPlan), patience)
		return err == nil && strings.Contains(string(answer.Data), `"stored":true`)
	})
	user := &receiver{calls: map[string]int{}, keys: map[string]map[string]bool{}}
	server := httptest.NewServer(user)
	t.Cleanup(server.Close)
	all, err := httpagent.Read("tell.yaml", []byte(`
services:
  users: {url: "`+server.URL+`", allow: [127.0.0.1]}
agents:
  tell.user:
    service: users
    steps:
      begun:
        do: {path: /ends, body: '{"task": task, "end": "begun"}'}
        undo: {method: POST, path: /ends, body: '{"task": task, "end": "undone"}'}
      done:
        do: {path: /ends, body: '{"task": task, "end": "processed"}'}
`))
	if err != nil {
		t.Fatal(err)
	}
	w.run(t, "tell", func(ctx context.Context) error { return all.Run(ctx, w.nc, duly.Drain(time.Second)) })
	if _, err := w.nc.QueueSubscribe("duly.do.bare.work", "q", func(m *nats.Msg) {
		answer := nats.NewMsg(m.Reply)
		if strings.Contains(string(m.Data), `"task":"bad"`) {
			answer.Header = nats.Header{"Nats-Service-Error": {"no such item"}, "Nats-Service-Error-Code": {"422"}}
		}
		_ = m.RespondMsg(answer)
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"good", "bad"} {
		if _, err := w.client.SubmitRaw(t.Context(), "order", id, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, is := range []string{"good begun", "good processed", "bad begun", "bad undone"} {
		until(t, is+" is told", func() bool {
			user.mu.Lock()
			defer user.mu.Unlock()
			return user.calls[is] >= 2
		})
	}
	for id, state := range map[string]duly.State{"good": duly.StateProcessed, "bad": duly.StateUndone} {
		until(t, id+" has ended", func() bool {
			task, err := w.client.Get(t.Context(), "order", id)
			return err == nil && task.State == state
		})
	}
	user.mu.Lock()
	defer user.mu.Unlock()
	for is, keys := range user.keys {
		if len(keys) != 1 || keys[""] {
			t.Errorf("%s was told by the keys %v, want one", is, keys)
		}
	}
	if user.calls["good undone"]+user.calls["bad processed"] > 0 {
		t.Errorf("told: %v", user.calls)
	}
}

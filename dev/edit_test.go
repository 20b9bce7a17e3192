package dev_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// An edited task starts again with the new input at the step that failed: also what that step's expressions see of it.
func TestExpressionsSeeTheEdit(t *testing.T) {
	w := start(t)
	w.plan(`{"name":"edit","version":1,"steps":[{"name":"pay","agent":"edit.pay","with":"{'cents': input.cents}","when":"input.cents < 500","on_exhausted":"error","attempts_max":1}]}`)
	var mu sync.Mutex
	var inputs []string
	w.agent("edit.pay", func(m *nats.Msg) {
		var c struct{ Input json.RawMessage }
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		inputs = append(inputs, string(c.Input))
		if code := []string{"422", "500", ""}[len(inputs)-1]; code != "" {
			refusal := nats.NewMsg(m.Reply)
			refusal.Header.Set("Nats-Service-Error-Code", code)
			refusal.Header.Set("Nats-Service-Error", "no")
			if err := m.RespondMsg(refusal); err != nil {
				t.Error(err)
			}
			return
		}
		answers("1")(m)
	}, nil)
	w.accepted("edit", "e", `{"cents":100}`, nil)
	stopped := func(tries int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			v, ok := w.task("edit", "e")
			return ok && len(inputs) == tries && (v.State == "error" || v.State == "processed")
		}
	}
	for i, input := range []string{`{"cents":200}`, `{"cents":300}`} {
		w.until("it stops", stopped(i+1))
		if code, body := w.http("POST", "/v1/tasks/edit/e/edit", `{"input":`+input+`,"reason":"a typo"}`, map[string]string{"Idempotency-Key": input}); code != 202 {
			t.Fatalf("%d %s", code, body)
		}
	}
	w.until("it is done", stopped(3))
	if want := []string{`{"cents":100}`, `{"cents":200}`, `{"cents":300}`}; !slices.Equal(inputs, want) {
		t.Errorf("sent %v, want %v", inputs, want)
	}
}

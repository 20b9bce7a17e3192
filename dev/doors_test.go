package dev_test

import (
	"encoding/json"
	"testing"
)

// TestDoorsRefuseAlike: what HTTP refuses NATS refuses by the same code and err_code, for each refusal that both can give.
//
// covers: G7
func TestDoorsRefuseAlike(t *testing.T) {
	w := start(t)
	w.plan(`{"name":"ask","version":1,"input_schema":{"type":"object"},"steps":[{"name":"only","kind":"signal","schema":{"type":"object","required":["by"]}}]}`)
	w.accepted("ask", "a1", `{}`, nil)
	w.until("it asks", func() bool {
		v, found := w.task("ask", "a1")
		return found && len(v.Steps) == 1
	})
	for _, x := range []struct{ name, method, path, body, subject, payload string }{
		{"an id outside the alphabet", "POST", "/v1/tasks/ask/a%20b/cancel", `{}`, "duly.ask.cancel.ask", `{"v":1,"kind":"cancel","id":"a b"}`},
		{"a type outside the alphabet", "POST", "/v1/tasks/a%20b/a1/cancel", `{}`, "duly.ask.cancel", `{"v":1,"kind":"cancel","type":"a b","id":"a1"}`},
		{"no such task", "POST", "/v1/tasks/ask/none/cancel", `{}`, "duly.ask.cancel.ask", `{"v":1,"kind":"cancel","id":"none"}`},
		{"no such type", "POST", "/v1/tasks/nosuch/none/cancel", `{}`, "duly.ask.cancel.nosuch", `{"v":1,"kind":"cancel","id":"none"}`},
		{"a task of another type", "POST", "/v1/tasks/other/a1/cancel", `{}`, "duly.ask.cancel.other", `{"v":1,"kind":"cancel","id":"a1"}`},
		{"no JSON", "POST", "/v1/tasks/ask/a1/cancel", `{`, "duly.ask.cancel.ask", `{`},
		{"an unknown member", "POST", "/v1/tasks/ask/a1/cancel", `{"x":1}`, "duly.ask.cancel.ask", `{"v":1,"kind":"cancel","id":"a1","x":1}`},
		{"another action than its address", "POST", "/v1/tasks/ask/a1/cancel", `{"action":"undo"}`, "duly.ask.cancel.ask", `{"v":1,"kind":"undo","id":"a1"}`},
		{"a reason with a control character", "POST", "/v1/tasks/ask/a1/cancel", `{"reason":"a\u0007b"}`, "duly.ask.cancel.ask", `{"v":1,"kind":"cancel","id":"a1","reason":"a\u0007b"}`},
		{"a payload that fits no schema", "POST", "/v1/tasks/ask/a1/signal", `{"step":"only","result":{}}`, "duly.ask.signal.ask", `{"v":1,"kind":"signal","id":"a1","step":"only","result":{}}`},
		{"a signal of no step", "POST", "/v1/tasks/ask/a1/signal", `{"result":{}}`, "duly.ask.signal.ask", `{"v":1,"kind":"signal","id":"a1","result":{}}`},
		{"a signal of an unknown step", "POST", "/v1/tasks/ask/a1/signal", `{"step":"none","result":{}}`, "duly.ask.signal.ask", `{"v":1,"kind":"signal","id":"a1","step":"none","result":{}}`},
		{"another ask", "POST", "/v1/tasks/ask/a1/signal", `{"step":"only","ask":"7-1-0011223344556677","result":{"by":"me"}}`, "duly.ask.signal.ask", `{"v":1,"kind":"signal","id":"a1","step":"only","ask":"7-1-0011223344556677","result":{"by":"me"}}`},
		{"a step outside the alphabet", "POST", "/v1/tasks/ask/a1/undo", `{"step":"a b","reason":"r"}`, "duly.ask.undo.ask", `{"v":1,"kind":"undo","id":"a1","step":"a b","reason":"r"}`},
		{"a resubmit of what runs", "POST", "/v1/tasks/ask/a1/resubmit", `{}`, "duly.ask.resubmit.ask", `{"v":1,"kind":"resubmit","id":"a1"}`},
		{"a resolve as what is no end", "POST", "/v1/tasks/ask/a1/resolve", `{"as":"error","reason":"r"}`, "duly.ask.resolve.ask", `{"v":1,"kind":"resolve","id":"a1","as":"error","reason":"r"}`},
		{"an extend without a time", "POST", "/v1/tasks/ask/a1/extend", `{}`, "duly.ask.extend.ask", `{"v":1,"kind":"extend","id":"a1"}`},
		{"an extend to the past", "POST", "/v1/tasks/ask/a1/extend", `{"until":"2001-02-03T04:05:06Z"}`, "duly.ask.extend.ask", `{"v":1,"kind":"extend","id":"a1","until":"2001-02-03T04:05:06Z"}`},
		{"a migrate to no version", "POST", "/v1/tasks/ask/a1/migrate", `{"version":9,"reason":"r"}`, "duly.ask.migrate.ask", `{"v":1,"kind":"migrate","id":"a1","version":9,"reason":"r"}`},
		{"a row before the first", "POST", "/v1/tasks/ask/a1/cancel", `{"if_seq":-1}`, "duly.ask.cancel.ask", `{"v":1,"kind":"cancel","id":"a1","if_seq":-1}`},
		{"a look at no task", "GET", "/v1/tasks/ask/none", "", "duly.ask.get.ask", `{"v":1,"id":"none"}`},
		{"a look at an id outside the alphabet", "GET", "/v1/tasks/ask/a%20b", "", "duly.ask.get.ask", `{"v":1,"id":"a b"}`},
		{"a list by no state", "GET", "/v1/tasks?state=gone", "", "duly.ask.list", `{"v":1,"state":"gone"}`},
		{"a list by no label", "GET", "/v1/tasks?label=gold", "", "duly.ask.list", `{"v":1,"label":"gold"}`},
		{"a list by no type", "GET", "/v1/tasks?type=a%20b", "", "duly.ask.list", `{"v":1,"type":"a b"}`},
		{"a list of too many", "GET", "/v1/tasks?limit=100000", "", "duly.ask.list", `{"v":1,"limit":100000}`},
		{"a list after nothing", "GET", "/v1/tasks?after=x", "", "duly.ask.list", `{"v":1,"after":"x"}`},
		{"no plan", "PUT", "/v1/plans", `{`, "duly.plans.apply", `{`},
		{"a plan that cannot work", "PUT", "/v1/plans", `{"name":"bad","version":1,"steps":[]}`, "duly.plans.apply", `{"name":"bad","version":1,"steps":[]}`},
		{"a plan with a child without a plan", "PUT", "/v1/plans", `{"name":"bad","version":1,"steps":[{"name":"a","kind":"task","child":"none"}]}`, "duly.plans.apply", `{"name":"bad","version":1,"steps":[{"name":"a","kind":"task","child":"none"}]}`},
		{"a version with another content", "PUT", "/v1/plans", `{"name":"ask","version":1,"steps":[{"name":"a","agent":"a"}]}`, "duly.plans.apply", `{"name":"ask","version":1,"steps":[{"name":"a","agent":"a"}]}`},
		{"an input that is no JSON", "PUT", "/v1/tasks/ask/a2", `{`, "duly.submit.ask.a2", `{`},
		{"an input that fits no schema", "PUT", "/v1/tasks/ask/a2", `1`, "duly.submit.ask.a2", `1`},
		{"a task of no plan", "PUT", "/v1/tasks/nosuch/a2", `{}`, "duly.submit.nosuch.a2", `{}`},
		{"a task of another input", "PUT", "/v1/tasks/ask/a1", `{"n":1}`, "duly.submit.ask.a1", `{"n":1}`},
		{"an id of another task type", "PUT", "/v1/tasks/ask/a%2Bb", `{}`, "duly.submit.ask.a+b", `{}`},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := w.in(t)
			status, text := w.http(x.method, x.path, x.body, map[string]string{"Content-Type": "application/json"})
			var over struct {
				ErrCode int `json:"err_code"`
			}
			if err := json.Unmarshal([]byte(text), &over); err != nil || status < 400 || over.ErrCode == 0 {
				t.Fatalf("HTTP answers %d %s: %v", status, text, err)
			}
			answer, err := w.nc.Request(x.subject, []byte(x.payload), patience)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Error struct {
					Code    int
					ErrCode int `json:"err_code"`
				}
			}
			if err := json.Unmarshal(answer.Data, &got); err != nil || got.Error.Code != status || got.Error.ErrCode != over.ErrCode {
				t.Errorf("HTTP: %d %s\nNATS: %s %v", status, text, answer.Data, err)
			}
		})
	}
}

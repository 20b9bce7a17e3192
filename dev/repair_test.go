package dev_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestRepair: a task in error is edited and starts again, a step is accepted and undone with its task, and one message
// of the control stream starts many tasks again, each at the journal row that was seen.
//
// covers: OP2, OP11
func TestRepair(t *testing.T) {
	w := start(t)
	w.plan(`{"name":"mend","version":1,"steps":[
		{"name":"charge","agent":"mend.charge","on_exhausted":"error"},{"name":"ship","agent":"mend.ship","after":["charge"]}]}`)
	var mu sync.Mutex
	calls := map[string]string{} // verb and key → the command
	mended := false
	note := func(verb string, then nats.MsgHandler) nats.MsgHandler {
		return func(msg *nats.Msg) {
			var c struct {
				Key   string
				Input json.RawMessage
			}
			if err := json.Unmarshal(msg.Data, &c); err != nil {
				t.Error(err)
			}
			mu.Lock()
			calls[verb+" "+c.Key] = string(msg.Data)
			good := mended || strings.Contains(string(c.Input), "Ulm")
			mu.Unlock()
			if verb == "charge" && !good {
				reply := nats.NewMsg(msg.Reply)
				reply.Header.Set("Nats-Service-Error-Code", "422")
				reply.Header.Set("Nats-Service-Error", "no such town")
				if err := msg.RespondMsg(reply); err != nil {
					t.Error(err)
				}
				return
			}
			then(msg)
		}
	}
	called := func(what string) string {
		mu.Lock()
		defer mu.Unlock()
		return calls[what]
	}
	w.agent("mend.charge", note("charge", answers("1")), note("refund", answers("")))
	w.agent("mend.ship", note("ship", answers("1")), note("return", answers("")))
	ask := func(kind, body string) string {
		t.Helper()
		msg, err := w.nc.Request("duly.ask."+kind, []byte(`{"v":1,"kind":"`+kind+`","type":"mend","actor":"olga","reason":"why",`+body+`}`), patience)
		if err != nil {
			t.Fatal(err)
		}
		return string(msg.Data)
	}

	w.accepted("mend", "m1", `{"town":"Um"}`, nil)
	w.ends("mend", "m1", "error")
	if answer := ask("edit", `"id":"m1","input":{"town":"Ulm"},"if_seq":1`); !strings.Contains(answer, `"code":409`) || !strings.Contains(answer, "possible now: undo, resubmit, edit, accept, resolve") {
		t.Errorf("an edit about another row: %s", answer)
	}
	if answer := ask("edit", `"id":"m1","input":{"town":"Ulm"},"if_seq":2`); !strings.Contains(answer, `"outcome"`) {
		t.Fatalf("edit: %s", answer)
	}
	w.until("m1 is processed", func() bool { v, _ := w.task("mend", "m1"); return v.State == "processed" })
	if _, body := w.http("GET", "/v1/tasks/mend/m1", "", nil); !strings.Contains(body, `"input":{"town":"Ulm"}`) {
		t.Errorf("after the edit: %s", body)
	}
	if code, _ := w.http("PUT", "/v1/tasks/mend/m1", `{"town":"Um"}`, nil); code != 200 {
		t.Errorf("the submission again: %d", code)
	}
	if code, _ := w.http("PUT", "/v1/tasks/mend/m1", `{"town":"Ulm"}`, nil); code != 409 {
		t.Errorf("a submission with the new input: %d", code)
	}

	w.accepted("mend", "m2", `{"town":"Um"}`, nil)
	w.ends("mend", "m2", "error")
	if answer := ask("accept", `"id":"m2","step":"charge","result":{"paid":"cash"},"if_seq":2`); !strings.Contains(answer, `"outcome"`) {
		t.Fatalf("accept: %s", answer)
	}
	w.until("m2 is processed", func() bool { v, _ := w.task("mend", "m2"); return v.State == "processed" })
	if c := called("ship m2/ship/0"); !strings.Contains(c, `{"paid":"cash"}`) {
		t.Errorf("the step after the accepted one got %s", c)
	}
	ask("undo", `"id":"m2"`)
	w.until("m2 is undone", func() bool { v, _ := w.task("mend", "m2"); return v.State == "undone" })
	if c := called("refund m2/charge/0"); !strings.Contains(c, `{"paid":"cash"}`) {
		t.Errorf("the accepted step was undone by %q", c)
	}

	const many = 12
	type place struct{ Partition, Number int }
	numbers, seqs := map[int][]int{}, map[int][]int{}
	for i := range many {
		id := fmt.Sprint("n-", i)
		w.accepted("mend", id, `{"town":"Um"}`, nil)
		w.ends("mend", id, "error")
		_, body := w.http("GET", "/v1/tasks/mend/"+id, "", nil)
		var p place
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Fatal(err)
		}
		seq := 2
		if i == 0 {
			seq = 1 // as if it had changed since
		}
		numbers[p.Partition], seqs[p.Partition] = append(numbers[p.Partition], p.Number), append(seqs[p.Partition], seq)
	}
	mu.Lock()
	mended = true
	mu.Unlock()
	for p, list := range numbers {
		n, err1 := json.Marshal(list)
		s, err2 := json.Marshal(seqs[p])
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		data := fmt.Sprintf(`{"v":1,"kind":"resubmit","numbers":%s,"seqs":%s,"type":"mend","actor":"operation-7"}`, n, s)
		for range 2 { // a sender that got no answer
			if _, err := w.js.Publish(fmt.Sprintf("duly.control.%d", p), []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := 1; i < many; i++ {
		id := fmt.Sprint("n-", i)
		w.until(id+" is processed", func() bool { v, _ := w.task("mend", id); return v.State == "processed" })
	}
	if v, _ := w.task("mend", "n-0"); v.State != "error" {
		t.Errorf("the one that had changed since is %s", v.State)
	}
}

package dev_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const many = 1000

// manyPlan is a plan of a thousand steps: in a line, side by side, or one before and one after all others. The last has an
// agent of its own.
func manyPlan(name, shape, last string) string {
	names := make([]string, many)
	steps := make([]string, many)
	for i := range many {
		names[i] = fmt.Sprintf(`"%s%04d"`, strings.Repeat("s", 60), i)
		after, agent := "[]", "many.all"
		switch {
		case i == 0:
		case shape == "line":
			after = "[" + names[i-1] + "]"
		case shape == "fan" && i < many-1:
			after = "[" + names[0] + "]"
		case shape == "fan":
			after = "[" + strings.Join(names[1:i], ",") + "]"
		}
		if i == many-1 {
			agent = last
		}
		steps[i] = fmt.Sprintf(`{"name":%s,"agent":%q,"after":%s,"uses":[],"complete_by_ms":60000}`, names[i], agent, after)
	}
	return fmt.Sprintf(`{"name":%q,"version":1,"complete_by_ms":900000,"grace_ms":50,"steps":[%s]}`, name, strings.Join(steps, ","))
}

// heardSteps are the steps of each task that agents did and undid, in their order.
type heardSteps struct {
	mu  sync.Mutex
	all map[string][]int // by task, and whether it is an undo
}

func (h *heardSteps) note(t *testing.T, msg *nats.Msg, undo string) {
	var c struct{ Task, Step string }
	var i int
	if err := json.Unmarshal(msg.Data, &c); err != nil || len(c.Step) != 64 {
		t.Errorf("command %s: %v", msg.Data, err)
		return
	}
	if _, err := fmt.Sscanf(c.Step[60:], "%d", &i); err != nil {
		t.Error(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[c.Task+undo] = append(h.all[c.Task+undo], i)
}

// TestThousandSteps: plans of a thousand steps in a line, side by side, and as a fan, go forward, and back when the last step
// is refused.
func TestThousandSteps(t *testing.T) {
	cfg := settings()
	cfg.Lease = 20 * time.Second // after one that lapsed, what was out counts as sent twice, and its undo waits for its complete-by
	w := startWith(t, cfg)
	heard := heardSteps{all: map[string][]int{}}
	says := func(undo string, answer nats.MsgHandler) nats.MsgHandler {
		return func(msg *nats.Msg) { heard.note(t, msg, undo); answer(msg) }
	}
	refuses := func(msg *nats.Msg) {
		reply := nats.NewMsg(msg.Reply)
		reply.Header.Set("Nats-Service-Error-Code", "422")
		reply.Header.Set("Nats-Service-Error", "no room for the last")
		if err := msg.RespondMsg(reply); err != nil {
			t.Error(err)
		}
	}
	w.agent("many.all", says("", answers("1")), says(" undo", answers("")))
	w.agent("many.no", says("", refuses), says(" undo", answers("")))
	shapes := []string{"line", "beside", "fan"}
	ends, err := w.nc.SubscribeSync("duly.live.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range shapes {
		w.plan(manyPlan(shape, shape, "many.all"))
		w.plan(manyPlan(shape+"-back", shape, "many.no"))
	}
	want := map[string]string{}
	for _, shape := range shapes {
		for name, state := range map[string]string{shape: "processed", shape + "-back": "undone"} {
			want[name] = state
			w.until(name+" is accepted", func() bool { // a busy machine may not have read its plan yet
				return strings.Contains(w.submit(name, name, `{}`, nil), `"seq":`)
			})
		}
	}
	began := time.Now()
	for open := len(want); open > 0; {
		msg, err := ends.NextMsg(5 * patience)
		if err != nil {
			t.Fatalf("%d tasks are open: %v", open, err)
		}
		var is struct{ Status string }
		if err := json.Unmarshal(msg.Data, &is); err != nil {
			t.Fatal(err)
		}
		switch is.Status {
		case "processed", "undone", "error":
			open--
		}
	}
	t.Logf("%d tasks of %d steps took %v", len(want), many, time.Since(began))
	heard.mu.Lock()
	defer heard.mu.Unlock()
	for name, state := range want {
		v := w.ends(name, name, state)
		status := map[string]int{}
		for i := range v.Steps {
			status[v.Steps[i].Status]++
		}
		if state == "processed" && status["done"] != many || state == "undone" && status["undone"] != many-1 {
			t.Errorf("%s: steps are %v", name, status)
		}
		order(t, name, state == "undone", heard.all[name], heard.all[name+" undo"])
	}
	if answer := w.apply(strings.Replace(manyPlan("more", "beside", "many.all"), `"steps":[`, `"steps":[{"name":"one","agent":"many.all"},`, 1)); !strings.Contains(answer, "1001 steps, want 1 to 1000") {
		t.Errorf("a plan of 1,001 steps: %s", answer)
	}
}

// order looks at the order in which agents did the steps of a task, and undid them.
func order(t *testing.T, name string, back bool, do, undo []int) {
	t.Helper()
	shape, _, _ := strings.Cut(name, "-")
	undone := many - 1 // the last was refused
	if !back {
		undone = 0
	}
	for _, of := range []struct {
		what  string
		steps []int
		n     int
	}{{"did", do, many}, {"undid", undo, undone}} {
		sorted := slices.Sorted(slices.Values(of.steps))
		if len(sorted) != of.n || len(slices.Compact(sorted)) != of.n {
			t.Errorf("%s: agents %s %d steps, want %d, each once", name, of.what, len(sorted), of.n)
		}
	}
	if shape == "line" && !slices.IsSorted(do) || shape == "line" && !slices.IsSortedFunc(undo, func(a, b int) int { return b - a }) {
		t.Errorf("%s: its steps are out of order", name)
	}
	if shape == "fan" && len(do) == many && (do[0] != 0 || do[many-1] != many-1) || shape == "fan" && back && len(undo) == undone && undo[undone-1] != 0 {
		t.Errorf("%s: its first and its last step are out of order", name)
	}
}

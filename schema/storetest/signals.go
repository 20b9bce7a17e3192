package storetest

import (
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// signalPlan has a call, two signals side by side, and a call.
func signalPlan() core.Plan {
	return core.Plan{Name: "request", Version: 1, Steps: []core.Step{
		{Name: "check", Agent: "a", CompleteBy: time.Hour}, {Name: "boss", Kind: core.SignalStep, After: []int{0}, CompleteBy: time.Hour},
		{Name: "bank", Kind: core.SignalStep, After: []int{0}, CompleteBy: 2 * time.Hour}, {Name: "book", Agent: "b", After: []int{1, 2}},
	}}.WithDefaults()
}

// testSignals: the steps that wait for an answer are counted, listed and named, the most urgent first, as long as they wait.
func testSignals(r *rig) {
	p := signalPlan()
	r.must(r.s.PutPlan(r.ctx, p))
	var out core.Outcome
	written := func(t *core.Task, birth bool) {
		r.Helper()
		w := *t
		r.write(core.TaskWrite{Task: &w, Birth: birth, Row: out.Row && !birth, Records: append([]core.Record(nil), out.Records...)})
	}
	event := func(t *core.Task, ev core.Event) {
		r.Helper()
		out.Reset()
		ev.Node = "node"
		r.must(core.Apply(&p, t, &ev, &out))
		written(t, false)
	}
	none := operate.Signals{Next: []operate.OpenSignal{}}
	r.equal("none", get(r.s.Signals(r.ctx, start, 5))(r), none)
	var tasks []*core.Task
	for i := range 3 {
		at := start.Add(time.Duration(i) * time.Minute)
		t := &core.Task{Partition: i % partitions, Number: int64(i + 1), ID: fmt.Sprint("ask", i), Type: p.Name, InputHash: []byte("h"), Deadline: start.Add(24 * time.Hour), CreatedAt: at}
		core.Birth(&p, t, &core.Event{At: at, Actor: "node", Node: "node"}, &out)
		written(t, true)
		tasks = append(tasks, t)
	}
	r.equal("not asked yet", get(r.s.Signals(r.ctx, start, 5))(r), none)
	for i, t := range tasks {
		event(t, core.Event{Kind: core.EventReply, At: start.Add(time.Duration(10*(i+1)) * time.Minute), Actor: "x@a", Seq: 1, Result: []byte(`1`)})
	}
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute).Time() }
	since := at(10)
	open := func(i int, steps []string, since, due int) operate.OpenSignal {
		return operate.OpenSignal{Type: p.Name, ID: fmt.Sprint("ask", i), Steps: steps, Since: at(since), Due: at(due)}
	}
	both := []string{"boss", "bank"}
	r.equal("three wait for two each, one of them not for long", get(r.s.Signals(r.ctx, start.Add(75*time.Minute), 2))(r), operate.Signals{
		Tasks: operate.Count{N: 3}, Steps: operate.Count{N: 6}, Near: operate.Count{N: 1}, Since: &since,
		Next: []operate.OpenSignal{open(0, both, 10, 70), open(1, both, 20, 80)},
	})
	r.equal("listed", r.labelledIDs(core.Filter{OpenSignal: true, Limit: 2}), []string{"ask2", "ask1", "ask0"})
	r.equal("of another type", r.labelledIDs(core.Filter{OpenSignal: true, Type: "other", Limit: 2}), []string(nil))
	// One answer comes, and the other is still waited for.
	event(tasks[0], core.Event{Kind: core.EventSignal, At: start.Add(40 * time.Minute), Actor: "anna", Step: "boss", Result: []byte(`true`)})
	r.equal("answered by one", get(r.s.Signals(r.ctx, start, 1))(r), operate.Signals{Tasks: operate.Count{N: 3}, Steps: operate.Count{N: 5}, Since: &since, Next: []operate.OpenSignal{open(1, both, 20, 80)}})
	event(tasks[0], core.Event{Kind: core.EventSignal, At: start.Add(41 * time.Minute), Actor: "bank", Step: "bank", Result: []byte(`true`)})
	event(tasks[1], core.Event{Kind: core.EventCancel, At: start.Add(42 * time.Minute), Actor: "anna"})
	since = at(30)
	r.equal("answered, and cancelled", get(r.s.Signals(r.ctx, start, 5))(r), operate.Signals{Tasks: operate.Count{N: 1}, Steps: operate.Count{N: 2}, Since: &since, Next: []operate.OpenSignal{open(2, both, 30, 90)}})
	r.equal("listed then", r.labelledIDs(core.Filter{OpenSignal: true, Limit: 2}), []string{"ask2"})
	r.equal("selected then", get(r.s.Freeze(r.ctx, preview("asked"), operate.Selection{Filter: &core.Filter{OpenSignal: true}}))(r), int64(1))
	// An answer that comes before its step begins is seen in the task and in the view `steps`, so that no other is asked for.
	early := &core.Task{Partition: 1, Number: 9, ID: "early", Type: p.Name, InputHash: []byte("h"), Deadline: start.Add(24 * time.Hour), CreatedAt: start}
	core.Birth(&p, early, &core.Event{At: start, Actor: "node", Node: "node"}, &out)
	written(early, true)
	words := func() (all []string) {
		for _, s := range get(r.s.Get(r.ctx, 1, early.ID))(r).Steps {
			all = append(all, s.Status)
		}
		if r.db != nil {
			var word string
			r.must(r.db.QueryRowContext(r.ctx, `SELECT status FROM steps WHERE task = 'early' AND name = 'boss'`).Scan(&word))
			r.equal("in the view", word, all[1])
		}
		return all
	}
	r.equal("before an early answer", words(), []string{"running", "waiting", "waiting", "waiting"})
	event(early, core.Event{Kind: core.EventSignal, At: start.Add(time.Minute), Actor: "anna", Step: "boss", Result: []byte(`true`)})
	r.equal("after it", words(), []string{"running", core.SignalledWord, "waiting", "waiting"})
	event(early, core.Event{Kind: core.EventReply, At: start.Add(2 * time.Minute), Actor: "x@a", Seq: 1, Result: []byte(`1`)})
	r.equal("when its step has begun", words(), []string{"done", "done", "running", "waiting"})
	if _, err := r.s.Signals(r.ctx, start, operate.ListMax+1); err == nil {
		r.Error("more were asked for than a list may have")
	}
}

package storetest

import (
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// parked is the write of a new task that waits for room at an agent.
func parked(p int, number int64, typ, agent string, deadline core.Instant, labels ...core.Label) core.TaskWrite {
	w := birth(p, number, fmt.Sprintf("t%d-%d", p, number))
	t := w.Task
	t.Type, t.State, t.WaitsFor, t.LockedBy, t.Deadline, t.Bound, t.Labels = typ, core.StatePending, agent, "", deadline, deadline, labels
	w.Records[0].State, w.Records[0].Next, w.Records[0].NextAttempt, w.Records[0].Due, w.Records[0].Deadline = core.StatePending, -1, 0, 0, deadline
	return w
}

// testFlow: what is parked is counted by agent, type and label, with the earliest deadline; what is in flight by partition.
func testFlow(r *rig) {
	s, ok := r.s.(operate.FlowReader)
	if !ok {
		r.Fatal("the store does not answer about the flow")
	}
	gold := core.Label{Key: "tier", Value: "gold"}
	at := func(minutes int) core.Instant { return start.Add(time.Duration(minutes) * time.Minute) }
	r.write(
		parked(0, 1, "order", "ship", at(9)), parked(0, 2, "order", "ship", at(7), gold), parked(0, 3, "other", "ship", at(5)),
		parked(1, 1, "order", "pay", at(3), core.Label{Key: "tier", Value: "base"}), parked(1, 2, "order", "ship", at(8), core.Label{Key: "k", Value: "v"}, gold),
		birth(1, 3, "x"), birth(2, 1, "y"),
	)
	undoing := birth(1, 4, "z")
	undoing.Task.State, undoing.Records[0].State = core.StateUndoing, core.StateUndoing
	r.write(undoing)
	of := func(taskType string, n int64, first core.Instant) operate.ParkedOf {
		return operate.ParkedOf{Type: taskType, Version: 1, Parked: operate.Parked{Tasks: operate.Count{N: n}, First: first}}
	}
	r.equal("parked at agents", get(s.ParkedAt(r.ctx))(r), map[string][]operate.ParkedOf{"ship": {of("order", 3, at(7)), of("other", 1, at(5))}, "pay": {of("order", 1, at(3))}})
	for _, c := range []struct {
		f     operate.ParkedFilter
		n     int64
		first core.Instant
	}{
		{operate.ParkedFilter{}, 5, at(3)},
		{operate.ParkedFilter{Agents: []string{"ship"}}, 4, at(5)},
		{operate.ParkedFilter{Agents: []string{"none", "pay"}}, 1, at(3)},
		{operate.ParkedFilter{Type: "order"}, 4, at(3)},
		{operate.ParkedFilter{Type: "order", Agents: []string{"ship"}}, 3, at(7)},
		{operate.ParkedFilter{Label: gold}, 2, at(7)},
		{operate.ParkedFilter{Label: gold, Type: "other"}, 0, 0},
		{operate.ParkedFilter{Label: core.Label{Key: "gold", Value: "tier"}}, 0, 0},
		{operate.ParkedFilter{Agents: []string{"none"}}, 0, 0},
	} {
		r.equal(fmt.Sprintf("parked %+v", c.f), get(s.Parked(r.ctx, c.f))(r), operate.Parked{Tasks: operate.Count{N: c.n}, First: c.first})
	}
	r.equal("in flight", get(s.InFlight(r.ctx))(r), map[int]operate.Count{0: {}, 1: {N: 2}, 2: {N: 1}, 3: {}})
}

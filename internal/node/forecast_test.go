package node

import (
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/forecast"
	"duly.dev/duly/internal/operate"
)

// learned is what is known of a plan of two steps, a second each, as of an instant.
func learned(at core.Instant) (*forecasts, *core.Plan) {
	p := core.Plan{Name: "order", Version: 1, CompleteBy: 10 * time.Second, Admission: core.AdmissionRefuse,
		Steps: []core.Step{{Name: "pay", Agent: "payment"}, {Name: "ship", Agent: "parcel", After: []int{0}}}}.WithDefaults()
	f := &forecasts{book: forecast.NewBook(0), now: func() core.Instant { return at }}
	for range 100 {
		for i := range p.Steps {
			f.book.Ran(&p, i, time.Second, at)
		}
	}
	return f, &p
}

const learnedAt = core.Instant(1_700_000_000_000_000)

// TestAdmit: too little time is said with both figures and what would be enough; the reserve counts; without history, and
// where it is old, submissions are let in.
func TestAdmit(t *testing.T) {
	f, p := learned(learnedAt)
	if why := f.admit(learnedAt, p, 3*time.Second); why != "" {
		t.Errorf("with 3s: %s", why)
	}
	why := f.admit(learnedAt, p, 1500*time.Millisecond)
	for _, want := range []string{"plan order takes 2", "and 1.5s are left", "a complete_by of 2"} {
		if !strings.Contains(why, want) {
			t.Errorf("with 1.5s: %q, want %q in it", why, want)
		}
	}
	p.UndoReserve = 2 * time.Second
	if why := f.admit(learnedAt, p, 3*time.Second); !strings.Contains(why, "undo_reserve keeps 2s") || !strings.Contains(why, "complete_by of 4") {
		t.Errorf("with 3s and a reserve of 2s: %q", why)
	}
	unknown := *p
	unknown.Name = "other"
	unknown.Steps = []core.Step{{Name: "x", Agent: "none"}}
	if why := f.admit(learnedAt, &unknown, time.Millisecond); why != "" {
		t.Errorf("without history: %s", why)
	}
	later := learnedAt.Add(time.Minute)
	let := 0
	for i := range 50 {
		if f.admit(later.Add(time.Duration(i)*100*time.Millisecond), p, time.Second) == "" {
			let++
		}
	}
	if let != 5 {
		t.Errorf("of 50 in 5 s, with old history, %d were let in, want one a second", let)
	}
}

// TestAdmitAfterClockSetBack: what was learned in a time that has yet to come is old, and one submission a second is let in.
func TestAdmitAfterClockSetBack(t *testing.T) {
	f, p := learned(learnedAt)
	if why := f.admit(learnedAt.Add(time.Minute), p, time.Second); why != "" {
		t.Errorf("with old history: %s", why)
	}
	let := 0
	for i := range 50 {
		if f.admit(learnedAt.Add(-time.Hour+time.Duration(i)*100*time.Millisecond), p, time.Second) == "" {
			let++
		}
	}
	if let != 5 {
		t.Errorf("of 50 in 5 s, after the clock was set back, %d were let in, want one a second", let)
	}
}

// TestOneIsLetInAllTheWay: a submission that is let in to learn from it passes the looks at its names, which over HTTP are two,
// that at its input, and that of its owner when it comes up.
func TestOneIsLetInAllTheWay(t *testing.T) {
	f, p := learned(learnedAt)
	now := learnedAt.Add(time.Minute)
	f.now = func() core.Instant { return now }
	for i := range 3 {
		if names, again, input := f.needs(p), f.needs(p), f.admit(now, p, time.Second); names != 0 || again != 0 || input != "" {
			t.Errorf("after %d s it is taken to need %v, then %v, and is told: %q", i, names, again, input)
		}
		if names, input := f.needs(p), f.admit(now, p, time.Second); names == 0 || input == "" {
			t.Errorf("after %d s another is let in", i)
		}
		if d := f.needsAtBirth(p); d != 0 {
			t.Errorf("after %d s one that comes up is taken to need %v", i, d)
		}
		now = now.Add(letEvery)
	}
}

// TestAggregate: each task of the sample counts for as many as it stands for, at the first step that is not over.
func TestAggregate(t *testing.T) {
	f, p := learned(learnedAt)
	done := operate.OpenStep{Step: 0, Status: core.StepDone, Began: learnedAt.Add(-2 * time.Second), At: learnedAt.Add(-time.Second)}
	task := func(state core.State, left time.Duration, steps ...operate.OpenStep) operate.OpenTask {
		return operate.OpenTask{Type: "order", PlanVersion: 1, State: state, Deadline: learnedAt.Add(left), Weight: 10, Steps: steps}
	}
	sample := operate.OpenSample{All: 50, Tasks: []operate.OpenTask{
		task(core.StatePending, time.Minute), task(core.StatePending, time.Second), // the second cannot make it
		task(core.StateProcessing, 1500*time.Millisecond, done), task(core.StateUndoing, time.Minute, done),
		{Type: "gone", PlanVersion: 3, State: core.StatePending, Deadline: learnedAt.Add(time.Hour), Weight: 10},
	}}
	got := f.aggregate(&sample, held(p, nil))
	if got.Sampled != 5 || got.Tasks.N != 50 || len(got.Plans) != 2 || !got.More {
		t.Fatalf("%+v", got)
	}
	order := got.Plans[0]
	if order.Type != "order" || order.Tasks != 40 || order.Unknown != 0 || order.P95MS < 1800 || order.P95MS > 2400 {
		t.Errorf("order: %+v", order)
	}
	about(t, "order", order.Chance, 0.5)
	want := []struct {
		step   string
		tasks  int64
		chance float64
	}{{"pay", 20, 0.5}, {"ship", 10, 1}, {"", 10, 0}}
	if len(order.Steps) != len(want) {
		t.Fatalf("steps: %+v", order.Steps)
	}
	for i, w := range want {
		if s := order.Steps[i]; s.Step != w.step || s.Tasks != w.tasks || s.Unknown != 0 {
			t.Errorf("step %d: %+v, want %+v", i, s, w)
		}
		about(t, w.step, order.Steps[i].Chance, w.chance)
	}
	if gone := got.Plans[1]; gone.Unknown != 10 || gone.Chance != nil || len(gone.Steps) != 1 || gone.Steps[0].Chance != nil || gone.Steps[0].Unknown != 10 {
		t.Errorf("of a plan that cannot be read: %+v", gone)
	}
}

// about fails a test when a chance is another one; want below 0: it is not known.
func about(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	switch {
	case got == nil && want >= 0:
		t.Errorf("%s: the chance is not known, want %v", what, want)
	case got != nil && (*got < want-0.03 || *got > want+0.03):
		t.Errorf("%s: the chance is %v, want %v", what, *got, want)
	}
}

// held is what holds steps of a plan.
func held(p *core.Plan, agents []operate.Agent, pauses ...core.Pause) *holding {
	h := &holding{agents: map[string]*operate.Agent{}, pauses: pauses, now: learnedAt, planOf: func(name string, _ int64) *core.Plan {
		if name == p.Name {
			return p
		}
		return nil
	}}
	for i := range agents {
		h.agents[agents[i].Name] = &agents[i]
	}
	return h
}

// TestHeld: whatever was learned, what is held without an end makes no deadline, what is held until a time begins then, and
// of what may go on or not the chance is not known.
//
// covers: O2
func TestHeld(t *testing.T) {
	f, p := learned(learnedAt)
	at := func(d time.Duration) core.Instant { return learnedAt.Add(d) }
	breaker := func(state core.BreakerState, forced bool, until time.Duration) []operate.Agent {
		b := operate.Breaker{State: state, Forced: forced, By: "olga"}
		if until != 0 {
			b.Until = at(until).Time()
		}
		return []operate.Agent{{Name: "parcel", Instances: 1, Breaker: b}}
	}
	there, away := operate.Agent{Name: "parcel", Instances: 1, Breaker: operate.Breaker{State: core.BreakerClosed}}, at(-time.Minute).Time()
	gone, silent, perhaps := there, there, there
	gone.Instances, gone.AwaySince, gone.Gone = 0, away, true
	silent.Instances = 0
	perhaps.Instances, perhaps.AwaySince = -1, away
	pay := operate.OpenStep{Step: 0, Status: core.StepRunning, Began: learnedAt, At: learnedAt}
	paid := operate.OpenStep{Step: 0, Status: core.StepDone, Began: at(-2 * time.Second), At: at(-time.Second)}
	ship := operate.OpenStep{Step: 1, Status: core.StepRunning, Began: learnedAt, At: learnedAt}
	label := core.Label{Key: "tenant", Value: "acme"}
	for _, c := range []struct {
		name   string
		agents []operate.Agent
		pauses []core.Pause
		steps  []operate.OpenStep
		chance float64
		held   string
	}{
		{"an agent that is there", []operate.Agent{there}, nil, nil, 1, ""},
		{"an agent that is gone, at a later step", []operate.Agent{gone}, nil, []operate.OpenStep{pay}, 0, "step ship: agent parcel is gone"},
		{"an agent that is gone with the command out", []operate.Agent{gone}, nil, []operate.OpenStep{paid, ship}, 0, "step ship: agent parcel is gone"},
		{"an agent that announces nothing", []operate.Agent{silent}, nil, nil, 1, ""},
		{"an agent that may have answered", []operate.Agent{perhaps}, nil, nil, 1, ""},
		{"a breaker held open", breaker(core.BreakerOpen, true, 0), nil, nil, 0, "step ship: the circuit breaker of agent parcel was opened by olga"},
		{"a breaker held open, the command out", breaker(core.BreakerOpen, true, 0), nil, []operate.OpenStep{paid, ship}, 1, ""},
		{"a breaker held open for a while", breaker(core.BreakerOpen, true, 10*time.Second), nil, nil, 1, "step ship: the circuit breaker of agent parcel was opened by olga until 2023-11-14T22:13:30Z"},
		{"a breaker held open for too long", breaker(core.BreakerOpen, true, time.Hour), nil, nil, 0, "step ship: the circuit breaker of agent parcel was opened by olga until 2023-11-14T23:13:20Z"},
		{"a breaker that opened", breaker(core.BreakerOpen, false, 10*time.Second), nil, nil, -1, "step ship: the circuit breaker of agent parcel is open"},
		{"a breaker that opened for too long", breaker(core.BreakerOpen, false, time.Hour), nil, nil, 0, "step ship: the circuit breaker of agent parcel is open"},
		{"a breaker in trial", breaker(core.BreakerTrial, false, 0), nil, nil, -1, "step ship: the circuit breaker of agent parcel is trial"},
		{"a breaker held closed", breaker(core.BreakerClosed, true, 0), nil, nil, 1, ""},
		{"a pause", nil, []core.Pause{{Type: "order", Step: "ship"}}, nil, 0, "step ship is paused"},
		{"a pause of everything", nil, []core.Pause{{}}, nil, 0, "step pay is paused"},
		{"a pause of everything, the command out", nil, []core.Pause{{}}, []operate.OpenStep{paid, ship}, 1, ""},
		{"a pause of another type", nil, []core.Pause{{Type: "gift"}}, nil, 1, ""},
		{"a pause of the label", nil, []core.Pause{{Label: label}}, nil, 0, "step pay is paused"},
		{"a pause of another label", nil, []core.Pause{{Label: core.Label{Key: "tenant", Value: "other"}}}, nil, 1, ""},
		{"a pause with an end", nil, []core.Pause{{Agent: "parcel", Until: at(10 * time.Second)}}, nil, 1, "step ship is paused until 2023-11-14T22:13:30Z"},
		{"a pause that ends too late", nil, []core.Pause{{Agent: "parcel", Until: at(59500 * time.Millisecond)}}, nil, 0, "step ship is paused until 2023-11-14T22:14:19Z"},
		{"a pause that is over", nil, []core.Pause{{Agent: "parcel", Until: at(-time.Second)}}, nil, 1, ""},
		{"a pause with an end and an agent that is gone", []operate.Agent{gone}, []core.Pause{{Agent: "parcel", Until: at(time.Second)}}, nil, 0, "step ship: agent parcel is gone"},
	} {
		sample := operate.OpenSample{All: 8093, Tasks: []operate.OpenTask{{Type: "order", PlanVersion: 1, State: core.StateProcessing, Deadline: at(time.Minute),
			Labels: []core.Label{label}, Weight: 8093, Steps: c.steps}}}
		got := f.aggregate(&sample, held(p, c.agents, c.pauses...)).Plans[0]
		about(t, c.name, got.Chance, c.chance)
		about(t, c.name+", at its step", got.Steps[0].Chance, c.chance)
		if unknown := int64(8093); (got.Unknown == unknown) != (c.chance < 0) || got.Unknown != got.Steps[0].Unknown || got.Steps[0].Held != c.held {
			t.Errorf("%s: %+v, want held %q", c.name, got, c.held)
		}
	}
}

// TestHeldInPart: where something holds some of the tasks of a step, the forecast says how many.
//
// covers: O2
func TestHeldInPart(t *testing.T) {
	f, p := learned(learnedAt)
	acme := core.Label{Key: "tenant", Value: "acme"}
	task := func(weight float64, labels ...core.Label) operate.OpenTask {
		return operate.OpenTask{Type: "order", PlanVersion: 1, State: core.StatePending, Deadline: learnedAt.Add(time.Minute), Labels: labels, Weight: weight}
	}
	sample := operate.OpenSample{All: 300, Tasks: []operate.OpenTask{task(100, acme), task(200)}}
	got := f.aggregate(&sample, held(p, nil, core.Pause{Type: "order", Step: "ship", Label: acme})).Plans[0].Steps
	if len(got) != 1 || got[0].Tasks != 300 || got[0].Held != "step ship is paused (about 100 of them)" {
		t.Errorf("%+v", got)
	}
}

// TestHeldUnsure: of a step that its plan may leave out, and of a child's, what holds it makes the chance unknown; of a task
// that is parked at that step, and of a child that is yet to be born, it is nil. A deadline that has passed is not made,
// whatever is not known.
func TestHeldUnsure(t *testing.T) {
	f, p := learned(learnedAt)
	p.Steps[1].When = "input.express"
	parent := core.Plan{Name: "basket", Version: 1, CompleteBy: time.Minute, Steps: []core.Step{{Name: "order", Kind: core.TaskStep, Child: "order"}}}.WithDefaults()
	child := *p
	child.Steps = []core.Step{child.Steps[0]}
	done := operate.OpenStep{Step: 0, Status: core.StepDone, Began: learnedAt, At: learnedAt}
	begun := operate.OpenStep{Step: 0, Status: core.StepRunning, Began: learnedAt, At: learnedAt}
	for _, c := range []struct {
		name   string
		plan   *core.Plan
		child  *core.Plan
		agent  string
		state  core.State
		left   time.Duration
		steps  []operate.OpenStep
		chance float64
	}{
		{"it may be left out", p, p, "parcel", core.StateProcessing, time.Minute, []operate.OpenStep{done}, -1},
		{"it is parked there", p, p, "parcel", core.StatePending, time.Minute, []operate.OpenStep{done}, 0},
		{"the deadline has passed", p, p, "parcel", core.StateProcessing, -time.Second, []operate.OpenStep{done}, 0},
		{"its child is not born", &parent, &child, "payment", core.StateProcessing, time.Minute, nil, 0},
		{"its child goes on", &parent, &child, "payment", core.StateProcessing, time.Minute, []operate.OpenStep{begun}, -1},
	} {
		h := held(c.child, []operate.Agent{{Name: c.agent, Gone: true, AwaySince: learnedAt.Time(), Breaker: operate.Breaker{State: core.BreakerClosed}}})
		o := f.outlookOf(c.plan, &operate.OpenTask{Type: c.plan.Name, PlanVersion: 1, State: c.state, Deadline: learnedAt.Add(c.left), Steps: c.steps}, h)
		if o.known != (c.chance >= 0) || o.chance != 0 {
			t.Errorf("%s: %+v, want %v", c.name, o, c.chance)
		}
	}
}

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
	for _, want := range []string{"plan order takes 2.", "and 1.5s are left", "a complete_by of 2."} {
		if !strings.Contains(why, want) {
			t.Errorf("with 1.5s: %q, want %q in it", why, want)
		}
	}
	p.UndoReserve = 2 * time.Second
	if why := f.admit(learnedAt, p, 3*time.Second); !strings.Contains(why, "undo_reserve keeps 2s") || !strings.Contains(why, "complete_by of 4.") {
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
	got := f.aggregate(&sample, func(name string, _ int64) *core.Plan {
		if name == "order" {
			return p
		}
		return nil
	}, learnedAt)
	if got.Sampled != 5 || got.Tasks.N != 50 || len(got.Plans) != 2 {
		t.Fatalf("%+v", got)
	}
	order := got.Plans[0]
	if order.Type != "order" || order.Tasks != 40 || order.Miss < 19.9 || order.Miss > 20.1 || order.P95MS < 1800 || order.P95MS > 2400 {
		t.Errorf("order: %+v", order)
	}
	want := []struct {
		step  string
		tasks int64
		miss  float64
	}{{"pay", 20, 10}, {"ship", 10, 0}, {"", 10, 10}}
	if len(order.Steps) != len(want) {
		t.Fatalf("steps: %+v", order.Steps)
	}
	for i, w := range want {
		if s := order.Steps[i]; s.Step != w.step || s.Tasks != w.tasks || s.Miss < w.miss-0.1 || s.Miss > w.miss+0.1 {
			t.Errorf("step %d: %+v, want %+v", i, s, w)
		}
	}
}

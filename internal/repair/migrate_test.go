package repair

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

var toSecond = operate.Request{Action: operate.ActionMigrate, Version: 2}

// slow is a plan whose steps have hours.
func slow() core.Plan {
	p := orders(core.PolicyUndo)
	p.CompleteBy = 24 * time.Hour
	for i := range p.Steps {
		p.Steps[i].CompleteBy = 2 * time.Hour
	}
	return p
}

// byDrone is its second version: another agent ships.
func byDrone() core.Plan {
	p := slow()
	p.Version, p.Steps[2].Agent = 2, "drone"
	return p
}

// Running tasks are moved wherever they have got to since the preview. Those of which a step has begun that is another one
// in the new version stay as they are: the preview counts them by reason, and their outcome says it. A task that is asked
// again because a message was lost is moved once.
//
// covers: OP2, OP3
func TestMigrateMany(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		shipped := func(tk *task) bool { return tk.live.Number%3 == 0 }
		lost := 0
		w.set(func() {
			w.store(byDrone())
			w.answer = func(tk *task, step string, _ bool) answer {
				switch {
				case step == "reserve" && !shipped(tk):
					return answer{after: 10 * time.Second}
				case step == "ship", step == "pay" && !shipped(tk):
					return answer{after: time.Hour}
				}
				return answer{}
			}
			w.drop = func(core.Control) bool { lost++; return lost == 3 }
		})
		tasks := w.begin(slow(), 300)
		later := w.begin(byDrone(), 5)
		pass(time.Second)
		s := w.service()
		p, err := s.Preview(t.Context(), anna, operate.Selection{Filter: &core.Filter{Type: "order"}}, toSecond)
		if err != nil {
			t.Fatal(err)
		}
		stays, why := int64(0), "step ship has begun, and version 2 has another agent for it"
		for _, tk := range tasks {
			if shipped(tk) {
				stays++
			}
		}
		if r := p.Rehearsal; p.Tasks != 300 || r.Repairable != 300-stays || r.Refused != stays || !slices.Equal(r.Reasons, []operate.ReasonCount{{Reason: why, Tasks: stays}}) {
			t.Errorf("preview of %d tasks: %+v", p.Tasks, r)
		}
		if want := "tasks of type order that are pending, processing or in error, of another version than 2"; p.Selection != want {
			t.Errorf("selection %q, want %q", p.Selection, want)
		}
		pass(15 * time.Second) // those that may be moved go on to pay
		op, err := s.Start(t.Context(), anna, p.Token, 0, 0, "by drone", p.Tasks)
		if err != nil {
			t.Fatal(err)
		}
		defer w.runner(t.Context(), config())()
		got, members := w.until(op.ID, operate.OperationDone)
		if want := (operate.Tally{Done: 300 - stays, Skipped: stays}); got.Tally != want {
			t.Errorf("tally %+v, want %+v", got.Tally, want)
		}
		for _, m := range members {
			tk := w.task(m.Partition, m.Number)
			moved, version, outcome, text := 1, int64(2), operate.OutcomeDone, ""
			if shipped(tk) {
				moved, version, outcome, text = 0, 1, operate.OutcomeSkipped, "refused: "+why
			}
			if tk.asked(op.ID) != moved || tk.live.PlanVersion != version || m.Outcome != outcome || m.Text != text || tk.live.State != core.StateProcessing {
				t.Errorf("task %s is %s of version %d, moved %d times: %+v", tk.live.ID, tk.live.State, tk.live.PlanVersion, tk.asked(op.ID), m)
			}
		}
		for _, tk := range later {
			if tk.asked(op.ID) != 0 {
				t.Errorf("task %s was of the version, and was asked", tk.live.ID)
			}
		}
	})
}

// Of which tasks a version cannot be asked: those of many plans, of a plan without it, and with an input that does not fit.
func TestMigrateManyRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		strict := byDrone()
		strict.InputSchema = `{"required":["zip"]}`
		w.set(func() { w.store(strict) })
		w.set(func() { w.answer = func(*task, string, bool) answer { return answer{after: time.Hour} } })
		w.begin(slow(), 3)
		cfg := config()
		cfg.CheckInput = func(p *core.Plan, input []byte) error {
			if p.Version == 2 && string(input) == `{}` {
				return errors.New("zip is missing")
			}
			return nil
		}
		s := NewService(cfg, w.db, w.desk(), w.db, nil, w.db, quiet)
		for _, c := range []struct {
			f    core.Filter
			r    operate.Request
			says string
		}{
			{core.Filter{State: core.StateProcessing}, toSecond, "the filter names no type"},
			{core.Filter{Type: "order"}, operate.Request{Action: operate.ActionMigrate, Version: 9}, `no plan "order" in version 9`},
			{core.Filter{Type: "order"}, operate.Request{Action: operate.ActionMigrate}, "version is 0"},
		} {
			var refused *operate.Refusal
			if _, err := s.Preview(context.Background(), anna, operate.Selection{Filter: &c.f}, c.r); !errors.As(err, &refused) || !strings.Contains(refused.Detail, c.says) {
				t.Errorf("%+v: %v, want %s", c.f, err, c.says)
			}
		}
		p, err := s.Preview(context.Background(), anna, operate.Selection{Filter: &core.Filter{Type: "order", PlanVersion: 1}}, toSecond)
		if err != nil {
			t.Fatal(err)
		}
		want := []operate.ReasonCount{{Reason: "input does not fit the input schema of plan order version 2: zip is missing", Tasks: 3}}
		if p.Rehearsal.Refused != 3 || !slices.Equal(p.Rehearsal.Reasons, want) || p.Selection != "tasks of type order of version 1 that are pending, processing or in error" {
			t.Errorf("%q: %+v", p.Selection, p.Rehearsal)
		}
	})
}

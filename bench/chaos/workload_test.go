package main

import (
	"errors"
	"net/rpc"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly"
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/internal/core"
)

// TestWorkJudge: the referee of a workload counts what agrees as clean, and finds each thing that can be wrong.
func TestWorkJudge(t *testing.T) {
	step := func(id, kind string, state core.State, status core.StepStatus) core.View {
		return core.View{ID: id, Type: kind, State: state, Steps: []core.StepView{{Name: "pay", Status: status.String()}}}
	}
	whole := func() story {
		return story{ref: mock.Ref{Type: "trip", ID: "a"}, taken: true, stored: true, task: step("a", "trip", core.StateProcessed, core.StepDone),
			children: []core.View{step("a~pay.0", "part", core.StateProcessed, core.StepDone)}}
	}
	for name, c := range map[string]struct {
		change                  func(*story)
		extra                   string // a key of one more effect
		twice                   map[string]int
		lost, doubled, halfDone int
	}{
		"clean":                              {},
		"not stored":                         {func(s *story) { s.stored = false }, "", nil, 1, 0, 2},
		"not ended":                          {func(s *story) { s.task.State = core.StateProcessing }, "", nil, 1, 0, 0},
		"a child that has not ended":         {func(s *story) { s.children[0].State = core.StatePending }, "", nil, 1, 0, 0},
		"undone and it stands":               {func(s *story) { s.task.Steps[0].Status = core.StepUndone.String() }, "", nil, 0, 0, 1},
		"the whole is undone, a part is not": {func(s *story) { s.task = step("a", "trip", core.StateUndone, core.StepDone) }, "", nil, 0, 0, 2},
		"done twice":                         {nil, "", map[string]int{"a": 1}, 0, 1, 0},
		"an effect in two rounds":            {nil, "a/pay/1", nil, 0, 1, 0},
		"an effect of no task":               {nil, "b/pay/0", nil, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			shop := mock.NewService("bank", mock.Faults{}, 1)
			books := mock.Books{"trip/pay": shop, "part/pay": shop}
			keys := []string{"a/pay/0", "a~pay.0/pay/0"}
			if c.extra != "" {
				keys = append(keys, c.extra)
			}
			for _, key := range keys {
				if err := shop.Do(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			s := whole()
			if c.change != nil {
				c.change(&s)
			}
			r := &workReport{}
			wrong := r.judge(books, []story{s}, c.twice)
			if r.Lost != c.lost || r.Doubled != c.doubled || r.HalfDone != c.halfDone || len(wrong) != c.lost+c.doubled+c.halfDone {
				t.Errorf("lost %d, doubled %d, half done %d, want %d, %d, %d: %q", r.Lost, r.Doubled, r.HalfDone, c.lost, c.doubled, c.halfDone, wrong)
			}
		})
	}
}

// TestWorkshop: what agents elsewhere do is in the books here, with the services' own answers.
func TestWorkshop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	shop := mock.NewService("bank", mock.Faults{}, 1)
	never := mock.NewService("never", mock.Faults{Refused: 1}, 1)
	down := mock.NewService("down", mock.Faults{Transient: 1}, 1)
	d, err := openDesk(path, &Workshop{map[string]*mock.Service{"bank": shop, "never": never, "down": down}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	client, err := rpc.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	far := workshop{client}
	if err := far.Do(t.Context(), "bank", "a/pay/0"); err != nil || shop.Stands("a/pay/0") != 1 {
		t.Errorf("%d effects: %v", shop.Stands("a/pay/0"), err)
	}
	if err := far.Undo(t.Context(), "bank", "a/pay/0"); err != nil || shop.Stands("a/pay/0") != 0 {
		t.Errorf("%d effects: %v", shop.Stands("a/pay/0"), err)
	}
	if err := far.Do(t.Context(), "bank", "a/pay/0"); !errors.Is(err, duly.ErrGone) {
		t.Errorf("a do after its undo: %v", err)
	}
	if err := far.Do(t.Context(), "never", "a/pay/0"); err == nil || !strings.Contains(err.Error(), "refuses") || errors.Is(err, duly.ErrGone) {
		t.Errorf("a service that refuses: %v", err)
	}
	if err := far.Do(t.Context(), "down", "a/pay/0"); err == nil || !strings.Contains(err.Error(), "down") {
		t.Errorf("a service that is down: %v", err)
	}
	if err := far.Do(t.Context(), "none", "a/pay/0"); err == nil || !strings.Contains(err.Error(), `service "none"`) {
		t.Errorf("a service that is not there: %v", err)
	}
}

// TestWorkloadSettings: a workload is one of the two, and brings its own faults and deliveries.
func TestWorkloadSettings(t *testing.T) {
	s, err := parse([]string{"-workload", "travel"})
	if err != nil || s.only != workloadKinds || s.rate != 20 {
		t.Errorf("%+v: %v", s, err)
	}
	if s, err = parse([]string{"-workload", "payout", "-only", "kill-nats", "-rate", "7"}); err != nil || s.only != "kill-nats" || s.rate != 7 {
		t.Errorf("%+v: %v", s, err)
	}
	if s, err = parse(nil); err != nil || s.only != "" || s.rate != 800 {
		t.Errorf("%+v: %v", s, err)
	}
	if _, err = parse([]string{"-workload", "trips"}); err == nil || !strings.Contains(err.Error(), `workload: "trips"`) {
		t.Errorf("%v", err)
	}
}

package drone

import (
	"strconv"
	"strings"
	"testing"
)

// play runs a task through the services as Duly would: all five steps, or three
// of them and back. It returns what the store would say.
func play(t *testing.T, all *Services, task string, undo bool) Outcome {
	t.Helper()
	var droneSerial uint32
	through := StepDelivery
	if undo {
		through = StepDrone
	}
	for step := StepAccount; step <= through; step++ {
		c := callOf(task, step, 1)
		c.Given = droneSerial
		serial := mustDo(t, all.Service(step), c)
		if step == StepDrone {
			droneSerial = serial
		}
	}
	if !undo {
		return Outcome{State: StateProcessed}
	}
	for step := through + 1; step > StepAccount; {
		if step--; step.Undoable() {
			if err := all.Service(step).Undo(t.Context(), callOf(task, step, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return Outcome{State: StateUndone}
}

// playMany plays ten tasks, every second one undone.
func playMany(t *testing.T, all *Services) ([]string, OutcomeMap) {
	t.Helper()
	var ids []string
	outcomes := OutcomeMap{}
	for i := range 10 {
		id := "task" + strconv.Itoa(i)
		ids = append(ids, id)
		outcomes[id] = play(t, all, id, i%2 == 1)
	}
	return ids, outcomes
}

// covers: T10
func TestCheckOfACleanRun(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1})
	ids, outcomes := playMany(t, all)
	outcomes["task10"] = Outcome{State: StateError}    // a person looks: not half-done
	outcomes["task11"] = Outcome{State: StateUndone}   // cancelled before it began
	outcomes["task12"] = play(t, all, "task12", false) // stored, its answer was lost
	report := all.Books().Check(append(ids, "task10", "task11", "task0"), outcomes)
	if !report.Clean() || len(report.Examples) != 0 {
		t.Errorf("a clean run is not clean: %+v", report)
	}
	if report.Accepted != 12 || report.Processed != 5 || report.Undone != 6 || report.Error != 1 {
		t.Errorf("counted %+v", report)
	}
}

// Every planted fault turns its counter non-zero and no other.
//
// covers: I2, D9, T10
func TestCheckFindsPlantedFaults(t *testing.T) {
	type counts struct{ lost, doubled, halfDone int }
	tests := []struct {
		name  string
		plant []Plant
		spoil func(*testing.T, *Services, OutcomeMap)
		want  counts
		why   string
	}{
		{name: "two effects for one key", plant: []Plant{{PlantDouble, StepDrone, 1}},
			want: counts{doubled: 5}, why: "step drone has 2 live effects"},
		{name: "effects in two rounds", spoil: func(t *testing.T, all *Services, _ OutcomeMap) {
			mustDo(t, all.Service(StepPackage), Call{Task: "task0", Key: "task0/package/1", Attempt: 1})
		}, want: counts{doubled: 1}, why: "step package has 2 live effects"},
		{name: "effect after its tombstone", plant: []Plant{{PlantGhost, StepPackage, 1}}, spoil: func(t *testing.T, all *Services, _ OutcomeMap) {
			mustDo(t, all.Service(StepPackage), callOf("task1", StepPackage, 2))
		}, want: counts{doubled: 1, halfDone: 1}, why: "step package took effect after its tombstone"},
		{name: "two done rows", spoil: func(_ *testing.T, _ *Services, outcomes OutcomeMap) {
			outcomes["task4"] = Outcome{State: StateProcessed, Done: []DoneRows{{"drone", 0, 1}, {"delivery", 0, 2}}}
		}, want: counts{doubled: 1}, why: "step delivery has 2 done rows in round 0"},
		{name: "effect forgotten", plant: []Plant{{PlantForget, StepDelivery, 1}},
			want: counts{halfDone: 5}, why: "processed, but step delivery has no live effect"},
		{name: "check forgotten", plant: []Plant{{PlantForget, StepTransport, 1}},
			want: counts{halfDone: 5}, why: "processed, but step transport never succeeded"},
		{name: "undo forgotten", plant: []Plant{{PlantKeep, StepPackage, 1}},
			want: counts{halfDone: 5}, why: "undone, but the effect of step package stands"},
		{name: "undone but told processed", spoil: func(_ *testing.T, _ *Services, outcomes OutcomeMap) {
			outcomes["task3"] = Outcome{State: StateProcessed}
		}, want: counts{halfDone: 1}, why: "processed, but step package has no live effect"},
		{name: "another task's drone", spoil: func(t *testing.T, all *Services, outcomes OutcomeMap) {
			outcomes["extra"] = play(t, all, "extra", true)
			stolen := callOf("other", StepDelivery, 1)
			stolen.Given = all.Books().Entry("task0", StepDrone).Serial
			for _, step := range []Step{StepAccount, StepPackage, StepTransport, StepDrone} {
				mustDo(t, all.Service(step), callOf("other", step, 1))
			}
			mustDo(t, all.Service(StepDelivery), stolen)
			outcomes["other"] = Outcome{State: StateProcessed}
		}, want: counts{halfDone: 1}, why: "processed, but the delivery was given drone-"},
		{name: "not ended", spoil: func(_ *testing.T, _ *Services, outcomes OutcomeMap) {
			outcomes["task0"] = Outcome{State: "processing"}
		}, want: counts{lost: 1}, why: `accepted, but still "processing"`},
		{name: "not in the store", spoil: func(_ *testing.T, _ *Services, outcomes OutcomeMap) {
			delete(outcomes, "task1")
		}, want: counts{lost: 1}, why: "accepted, but the store does not know it"},
		{name: "effect of no task", spoil: func(t *testing.T, all *Services, _ OutcomeMap) {
			mustDo(t, all.Service(StepDrone), callOf("unknown", StepDrone, 1))
		}, want: counts{halfDone: 1}, why: "the store does not know it, but the effect of step drone stands"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			all := newServices(t, ServiceOptions{Seed: 1, Plants: test.plant})
			ids, outcomes := playMany(t, all)
			if test.spoil != nil {
				test.spoil(t, all, outcomes)
			}
			report := all.Books().Check(ids, outcomes)
			got := counts{report.Lost, report.Doubled, report.HalfDone}
			if got != test.want || report.Clean() {
				t.Errorf("counted %+v, want %+v: %+v", got, test.want, report.Examples)
			}
			found := false
			for _, e := range report.Examples {
				found = found || strings.HasPrefix(e.Why, test.why)
			}
			if !found {
				t.Errorf("no example says %q: %+v", test.why, report.Examples)
			}
		})
	}
}

// A plant can hit a share of the tasks, and examples are bounded.
func TestCheckBoundsItsExamples(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 1, Plants: []Plant{{PlantDouble, StepPackage, 0.5}}})
	var ids []string
	outcomes := OutcomeMap{}
	for i := range 200 {
		id := strconv.Itoa(i)
		ids, outcomes[id] = append(ids, id), play(t, all, id, false)
	}
	report := all.Books().Check(ids, outcomes)
	if report.Doubled < 70 || report.Doubled > 130 {
		t.Errorf("%d of 200 doubled, want about half", report.Doubled)
	}
	if len(report.Examples) != ExamplesMax {
		t.Errorf("%d examples, want %d", len(report.Examples), ExamplesMax)
	}
}

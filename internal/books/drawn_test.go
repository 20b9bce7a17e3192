package books

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// drawnBooks is a world of drawn tasks with drawn faults in the books of their services, and what a comparison has to say.
type drawnBooks struct {
	*world
	rt    *rapid.T
	tasks map[string]*drawnTask
}

type drawnTask struct {
	*core.Task
	forgotten bool // its journal is
}

// TestBooksOfDrawnFaults: whatever tasks did, and whatever was added to, doubled in or taken from the books of their services,
// a comparison names that and nothing else, in whatever pages it reads; and the books close where there is nothing.
//
// covers: Q4
func TestBooksOfDrawnFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := &drawnBooks{world: newWorld(), rt: rt, tasks: map[string]*drawnTask{}}
		d.heal = map[string]int{}
		d.plan = core.Plan{Name: "order", Version: 1, Steps: []core.Step{
			{Name: "check", Agent: "account"},
			{Name: "reserve", Agent: "warehouse", Undoable: true, After: []int{0}},
			{Name: "charge", Agent: "payment", Undoable: true, After: []int{1}},
			{Name: "wrap", Agent: "warehouse", Undoable: true, After: []int{2}, OnExhausted: core.PolicySkip},
		}}.WithDefaults()
		d.page = rapid.IntRange(1, 5).Draw(rt, "page")
		for i := range rapid.IntRange(0, 10).Draw(rt, "tasks") {
			d.live(t, fmt.Sprintf("t%d", i))
		}
		for i := range rapid.IntRange(0, 8).Draw(rt, "faults") {
			d.fault(i)
		}
		for _, agent := range []string{"payment", "warehouse"} {
			d.silent[agent] = rapid.IntRange(0, 7).Draw(rt, "silent") == 7
			d.none[agent] = rapid.IntRange(0, 7).Draw(rt, "none") == 7
		}
		wanted, open := d.wanted()
		accepted := map[string]bool{}
		for _, key := range slices.Sorted(maps.Keys(wanted)) {
			accepted[key] = rapid.IntRange(0, 4).Draw(rt, "accepted") == 4
		}
		r := d.compareWith(t, Options{Accepted: func(g *operate.Ghost) bool { return accepted[g.Key] }})
		d.check(r, wanted, open, accepted)
	})
}

// live lets a task live as far as drawn, and perhaps forgets its journal.
func (d *drawnBooks) live(t *testing.T, id string) {
	t.Helper()
	var codes []int
	for i := range rapid.IntRange(0, len(d.plan.Steps)).Draw(d.rt, "answers") {
		code := 0
		if rapid.IntRange(0, 5).Draw(d.rt, "refuses") == 5 {
			code = core.CodeRefused
		}
		codes = append(codes, code)
		if code != 0 && d.plan.Steps[i].OnExhausted != core.PolicySkip {
			break
		}
	}
	task := &drawnTask{Task: d.run(t, id, codes...)}
	if task.State.Ended() && rapid.IntRange(0, 3).Draw(d.rt, "forgotten") == 3 {
		task.forgotten = true
		d.world.tasks[len(d.world.tasks)-1].Journal = nil
	}
	d.tasks[id] = task
}

// fault puts one thing into the books that is not as the journal says, or takes one out.
func (d *drawnBooks) fault(n int) {
	step := d.plan.Steps[rapid.IntRange(1, 3).Draw(d.rt, "step")]
	book := d.effects[step.Agent]
	keys := slices.Sorted(maps.Keys(book))
	heals := rapid.IntRange(0, 3).Draw(d.rt, "heals") == 3
	key := core.Key(fmt.Sprintf("stranger%d", n), step.Name, 0)
	switch kind := rapid.IntRange(0, 4).Draw(d.rt, "fault"); {
	case kind <= 1 && len(keys) > 0:
		key = rapid.SampledFrom(keys).Draw(d.rt, "key")
		if d.heal[key] = 1; kind == 0 {
			delete(book, key)
			return
		}
		book[key] = rapid.IntRange(2, 4).Draw(d.rt, "times")
	case kind <= 3 && len(d.tasks) > 0:
		id := rapid.SampledFrom(slices.Sorted(maps.Keys(d.tasks))).Draw(d.rt, "task")
		task := d.tasks[id]
		round := task.Round + max(0, kind-2) // its own, or one that it has not come to
		if key = core.Key(id, step.Name, round); book[key] > 0 || task.State != core.StateUndone && round == task.Round {
			return // a step that was not done may have one, as far as the journal knows
		}
		book[key] = 1
	default:
		book[key] = 1
	}
	if !heals {
		delete(d.heal, key)
		return
	}
	if d.heal[key] = 0; book[key] > 1 {
		d.heal[key] = 1
	}
}

// wanted are the differences that there are, by key, and how many effects are of unfinished tasks.
func (d *drawnBooks) wanted() (wanted map[string]operate.GhostKind, open int64) {
	wanted = map[string]operate.GhostKind{}
	for agent, book := range d.effects {
		if d.silent[agent] || d.none[agent] {
			continue
		}
		for key, times := range book {
			kind, isOpen := d.wantedOf(key, times)
			if after, heals := d.heal[key]; heals && kind != "" {
				kind, isOpen = "", false
				if after > 0 {
					kind, _ = d.wantedOf(key, after)
				}
			}
			if isOpen {
				open++
			}
			if kind != "" {
				wanted[key] = kind
			}
		}
	}
	for id, task := range d.tasks {
		for i := range d.plan.Steps {
			step := &d.plan.Steps[i]
			key := core.Key(id, step.Name, task.Round)
			optional := step.OnExhausted == core.PolicySkip
			if task.State != core.StateProcessed || !step.Undoable || d.silent[step.Agent] || d.none[step.Agent] || d.effects[step.Agent][key] > 0 ||
				optional && (task.forgotten || task.Steps[i].Status != core.StepDone) {
				continue
			}
			wanted[key] = operate.GhostMissing
		}
	}
	return wanted, open
}

// wantedOf is what is wrong with an effect that is there so often; empty: nothing.
func (d *drawnBooks) wantedOf(key string, times int) (kind operate.GhostKind, open bool) {
	of, err := keyOf(key)
	if err != nil {
		d.rt.Fatal(err)
	}
	task := d.tasks[of.Task]
	switch {
	case task == nil:
		return operate.GhostUnknown, false
	case times > 1:
		return operate.GhostDoubled, false
	case !task.State.Ended():
		return "", true
	case task.State == core.StateProcessed && of.Round == task.Round:
		return "", false
	}
	return operate.GhostOfUndone, false
}

// check compares a report with what is wanted of it.
func (d *drawnBooks) check(r *Report, wanted map[string]operate.GhostKind, open int64, accepted map[string]bool) {
	left, acceptedOnes, processed := maps.Clone(wanted), int64(0), int64(0)
	for key := range wanted {
		if accepted[key] {
			delete(left, key)
			acceptedOnes++
		}
	}
	kinds := map[operate.GhostKind]int64{}
	for key, kind := range left {
		kinds[kind]++
		if !slices.ContainsFunc(r.Ghosts, func(g operate.Ghost) bool { return g.Key == key && g.Kind == kind }) {
			d.rt.Fatalf("%s, %s, is not named: %+v", key, kind, r.Ghosts)
		}
	}
	if len(r.Ghosts) != len(left) || r.Total != int64(len(left)) || r.Accepted != acceptedOnes || !maps.Equal(r.Kinds, kinds) {
		d.rt.Fatalf("%d differences, %d accepted, %v; want %v less %d accepted; %+v", r.Total, r.Accepted, r.Kinds, wanted, acceptedOnes, r.Ghosts)
	}
	for _, task := range d.tasks {
		if task.State == core.StateProcessed {
			processed++
		}
	}
	silent, none := 0, 0
	for _, agent := range []string{"payment", "warehouse"} {
		if d.none[agent] {
			none++
		} else if d.silent[agent] {
			silent++
		}
	}
	if none+silent == 2 {
		processed = 0
	}
	closed := none < 2 && len(left) == 0 && silent == 0
	if r.Open != open || r.Tasks != processed || r.Closed != closed || r.Silent() != silent || r.Kept() != 2-none {
		d.rt.Fatalf("open %d, tasks %d, closed %v, silent %d, kept %d; want %d %d %v %d %d", r.Open, r.Tasks, r.Closed, r.Silent(), r.Kept(), open, processed, closed, silent, 2-none)
	}
}

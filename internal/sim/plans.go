package sim

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"time"

	"duly.dev/duly/internal/core"
)

// addPlans stores the plans of the linear world, which are chains: short times, every policy, checks
// among the steps.
func (w *World) addPlans() {
	step := func(name string, change func(*core.Step)) core.Step {
		s := core.Step{
			Name: name, Agent: "agent." + name, Undoable: true, CompleteBy: 300 * time.Millisecond,
			Backoff: 20 * time.Millisecond, BackoffCap: 100 * time.Millisecond, Pause: 400 * time.Millisecond,
			UndoBackoffCap: 200 * time.Millisecond, UndoPatience: 20 * time.Second, KeyLasts: w.books.keyLasts,
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	check := func(s *core.Step) { s.Undoable = false }
	wait := func(s *core.Step) { s.OnExhausted, s.AttemptsMax = core.PolicyWait, 2 }
	fail := func(s *core.Step) { s.OnExhausted = core.PolicyError }
	asked := func(s *core.Step) { wait(s); s.Probe = true }
	brief := func(s *core.Step) { s.AttemptsMax, s.UndoAttemptsMax, s.Probe = 1, 1, true } // it is undone at once, and that may give up
	for _, p := range []core.Plan{
		{Name: "order", Version: 1, CompleteBy: 20 * time.Second, Steps: []core.Step{
			step("credit", check), step("reserve", nil), step("charge", nil), step("ship", asked), step("mail", check)}},
		{Name: "quick", Version: 1, CompleteBy: time.Second, Steps: []core.Step{step("reserve", nil), step("charge", brief)}},
		{Name: "strict", Version: 1, CompleteBy: 20 * time.Second, Steps: []core.Step{step("charge", fail), step("ship", fail)}},
	} {
		for i := 1; i < len(p.Steps); i++ {
			p.Steps[i].After = []int{i - 1}
		}
		w.addPlan(p)
	}
}

func (w *World) addPlan(p core.Plan) {
	if p.Grace == 0 {
		p.Grace = grace
	}
	w.Store.AddPlan(p)
	if w.second != nil {
		put := func(s Second) {
			if err := s.PutPlan(context.Background(), p.WithDefaults()); err != nil {
				w.wrong(-1, "", "the second store does not take plan %s: %v", p.Name, err)
			}
		}
		w.second.write(put)
		put(w.second.store)
	}
	full := p.WithDefaults()
	w.plans = append(w.plans, &full)
}

// planBook is what ingest knows of the plans.
type planBook struct{ w *World }

func (b planBook) Plan(taskType string, version int64) *core.Plan {
	for _, p := range b.w.plans {
		if p.Name == taskType && (version == 0 || version == p.Version) {
			return p
		}
	}
	return nil
}

func (b planBook) Deprecated(string, int64) bool { return false }

func (b planBook) Reload(done func(error)) { done(nil) }

// plan is the plan of a type.
func (w *World) plan(taskType string) *core.Plan { return planBook{w}.Plan(taskType, 0) }

// planOf is the plan of a task by its id: of a child the store says it, and of one that it has forgotten what it said.
func (w *World) planOf(id string) *core.Plan {
	if id != core.RootID(id) {
		return planBook{w}.Plan(w.born[id], 0)
	}
	return w.roots[int(w.hashOf("type of "+id))%len(w.roots)]
}

func (w *World) partitionOf(id string) int {
	return int(w.hashOf("place of "+core.RootID(id))) % w.cfg.Partitions
}

// hashOf is what a world makes of a name, the same at all times.
func (w *World) hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, w.cfg.Seed))
	return h.Sum32()
}

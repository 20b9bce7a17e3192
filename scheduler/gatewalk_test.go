package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// gateWalk is a shard whose agents are paused, limited, in trouble and away as chance has it. Whenever it wants no further round,
// a referee derives from the stored tasks alone what could go on, and there must be nothing of that.
type gateWalk struct {
	*rig
	rand     *rand.Rand
	seed     uint64
	pauses   []core.Pause
	breakers map[string]core.Breaker
	limits   map[string]core.Limit
	known    map[string]core.Command // commands that are out, by task and step
	told     []core.Limit            // limits that the shard knows
	fresh    bool                    // the owner is new: what was out is sent again
	n        int
}

func newGateWalk(t *testing.T, seed uint64) *gateWalk {
	w := &gateWalk{rand: rand.New(rand.NewPCG(seed, 5)), seed: seed, breakers: map[string]core.Breaker{}, limits: map[string]core.Limit{}, known: map[string]core.Command{}}
	w.rig = newRig(t, scheduler.Config{AgentWindow: 1 + w.rand.IntN(4), KeyOf: keyByInput})
	w.store.AddPlan(orderPlan("one", 1, "a"))
	wide := orderPlan("wide", 1, "a", "b")
	wide.Steps[1].After = nil
	w.store.AddPlan(wide)
	w.mail.PlansChanged = true
	w.begin()
	return w
}

// begin has a new owner know the agents, and hear of everything at the gates.
func (w *gateWalk) begin() {
	w.known, w.fresh = map[string]core.Command{}, true
	w.submit("wide", 1)
	w.settle()
	w.tell()
	w.settle()
	w.fresh = false
}

// tell tells the shard of the pauses, breakers and limits.
func (w *gateWalk) tell() {
	w.pause(slices.Clone(w.pauses)...)
	var open []core.Breaker
	var limits []core.Limit
	for _, agent := range []string{"agent.a", "agent.b"} {
		if b, ok := w.breakers[agent]; ok {
			open = append(open, b)
		}
		if l, ok := w.limits[agent]; ok {
			limits = append(limits, l)
		}
	}
	w.shut(open...)
	if slices.Equal(w.told, limits) && !w.fresh { // grants that come again would wake what waits for something else
		return
	}
	w.told, w.mail.Limits = limits, &limits
	w.cycle()
	for i, l := range limits {
		grant := func(keyed bool, key string, places int) {
			g := core.Grant{Holder: "n", Keyed: keyed, Key: key, Wanted: 1, Places: places, Until: w.now.Add(1000 * time.Hour)}
			w.mail.Grants = append(w.mail.Grants, scheduler.GrantMail{Term: w.shard.Term(), Seq: int64(i + 1), ClaimedGrant: core.ClaimedGrant{Limit: l, Grant: g, Fair: g, First: true}})
		}
		if l.InAll() {
			grant(false, "", l.Concurrent)
		}
		for _, key := range walkKeys {
			if l.Key != "" {
				grant(true, key, l.KeyConcurrent)
			}
		}
	}
}

var walkKeys = []string{"1", "2", "3"}

func (w *gateWalk) submit(kind string, n int) {
	var subs []core.Submission
	for range n {
		w.n++
		s := core.Submission{Type: kind, ID: fmt.Sprint("t", w.n), Input: []byte(walkKeys[w.rand.IntN(3)]), CompleteBy: w.now.Add(500 * time.Hour)}
		if w.rand.IntN(3) == 0 {
			s.Labels = []core.Label{{Key: "tier", Value: "gold"}}
		}
		subs = append(subs, s)
	}
	w.tasks(0, subs...)
}

// settle runs cycles until the shard wants none.
func (w *gateWalk) settle() {
	for range 1000 {
		w.cycle()
		for _, c := range w.bus.take() {
			w.note(c)
		}
		if next := w.shard.NextWake(); w.mail.Empty() && (next == 0 || next > w.now) {
			return
		}
	}
	w.t.Fatalf("seed %d: rounds without end", w.seed)
}

// note takes note of a command, which nothing may have held.
func (w *gateWalk) note(c core.Command) {
	of := fmt.Sprint(c.Task, "/", c.Step)
	if _, again := w.known[of]; !again && !c.Undo && !w.fresh && c.Copy == 0 && w.paused(w.store.Task(0, c.Task), c.Step) {
		w.t.Fatalf("seed %d: %s leaves, and is paused by one of %+v", w.seed, of, w.pauses)
	}
	w.known[of] = c
}

// paused reports whether a pause is about a step of a task.
func (w *gateWalk) paused(t *core.Task, step string) bool {
	return slices.ContainsFunc(w.pauses, func(p core.Pause) bool {
		gold := p.Label.Key == "" || slices.Contains(t.Labels, p.Label)
		return (p.Until == 0 || w.now < p.Until) && gold && (p.Type == "" || p.Type == t.Type) && (p.Step == "" || p.Step == step) && (p.Agent == "" || p.Agent == "agent."+step)
	})
}

// steps are the names of the steps of a task, by index.
func stepsOf(t *core.Task) []string {
	if t.Type == "one" {
		return []string{"a"}
	}
	return []string{"a", "b"}
}

// all are the tasks that are stored.
func (w *gateWalk) all() (all []*core.Task) {
	for n := range w.n {
		if t := w.store.Task(0, fmt.Sprint("t", n+1)); t != nil {
			all = append(all, t)
		}
	}
	return all
}

// judge looks for a step that could begin and does not. It is in doubt where the rules are finer than it is: who waits behind tasks
// that have begun, and what a retry has given up.
func (w *gateWalk) judge() {
	all := w.all()
	out, away, byKey, begunAt := map[string]int{}, map[string]int{}, map[string]int{}, map[string]bool{}
	for _, t := range all {
		for i, step := range stepsOf(t) {
			if s := &t.Steps[i]; s.Out != 0 || s.Awaits != 0 || t.State == core.StateProcessing && s.Attempt > 0 && s.Due != 0 { // or between two attempts
				out[step]++
				byKey[step+string(t.Input)]++
				if s.Awaits != 0 && s.Said == 0 {
					away[step]++
				}
			}
		}
		if t.State == core.StatePending && slices.ContainsFunc(t.Steps, func(s core.StepState) bool {
			return s.Status != core.StepWaiting || s.Attempt > 0 || s.Effect.Possible()
		}) {
			begunAt[t.WaitsFor] = true
		}
	}
	for _, t := range all {
		for i, step := range stepsOf(t) {
			agent, s := "agent."+step, &t.Steps[i]
			waits := t.State == core.StatePending && t.WaitsFor == agent || t.State == core.StateProcessing && t.Type == "wide"
			if !waits || s.Status != core.StepWaiting || s.Out != 0 || s.Awaits != 0 || s.Due > w.now || t.Type == "order" && step == "b" && t.Steps[0].Status != core.StepDone {
				continue
			}
			limit, limited := w.limits[agent]
			b := w.breakers[agent]
			state, _ := b.At(w.now)
			switch {
			case w.paused(t, step), state == core.BreakerOpen, state == core.BreakerTrial && out[step] > 0, out[step] >= w.cfg.AgentWindow, away[step] > 0: // of so small a window one waits for an agent that is away
			case limited && limit.Concurrent > 0 && out[step] >= limit.Concurrent:
			case limited && limit.Key != "" && byKey[step+string(t.Input)] >= limit.KeyConcurrent:
			case len(begunAt) > 0 && t.Type != "one":
			default:
				wakers, _ := w.shard.Wakers(0, agent, t.Number)
				text := ""
				for _, t := range all {
					if !t.State.Ended() {
						text += fmt.Sprintf("input %s, waits for %q, %v\n%s", t.Input, t.WaitsFor, t.Labels, w.store.History(0, t.ID))
					}
				}
				w.t.Fatalf("seed %d: step %s of %s, %s, could begin and stands still: %d are out there, %d of its key, window %d, limit %+v, breaker %+v, wakers %+v, pauses %+v\n%s",
					w.seed, step, t.ID, t.State, out[step], byKey[step+string(t.Input)], w.cfg.AgentWindow, limit, b, wakers, w.pauses, text)
			}
		}
	}
}

// change draws something new at the gates.
func (w *gateWalk) change() {
	agent := []string{"agent.a", "agent.b"}[w.rand.IntN(2)]
	switch w.rand.IntN(3) {
	case 0:
		gold := core.Label{Key: "tier", Value: "gold"}
		kinds := []core.Pause{{Agent: agent}, {Type: "one"}, {Type: "order", Step: "b"}, {Label: gold}, {}, {Agent: "agent.a", Label: gold}}
		w.pauses = nil
		for range w.rand.IntN(3) {
			p := kinds[w.rand.IntN(len(kinds))]
			if w.rand.IntN(2) == 0 {
				p.Until = w.now.Add(time.Duration(1+w.rand.IntN(3)) * time.Second)
			}
			w.pauses = append(w.pauses, p)
		}
	case 1:
		rev := w.breakers[agent].Revision + 1
		switch w.rand.IntN(3) {
		case 0:
			delete(w.breakers, agent)
		case 1:
			w.breakers[agent] = core.Breaker{Agent: agent, State: core.BreakerTrial, Revision: rev}
		default:
			w.breakers[agent] = openBreaker(agent, w.now.Add(time.Duration(1+w.rand.IntN(3))*time.Second), rev)
		}
	default:
		l := core.Limit{Agent: agent, Revision: w.limits[agent].Revision + 1}
		switch w.rand.IntN(4) {
		case 0:
			delete(w.limits, agent)
			return
		case 1:
			l.Concurrent = 1 + w.rand.IntN(3)
		case 2:
			l.Key, l.KeyConcurrent = "input", 1+w.rand.IntN(2)
		default:
			l.Concurrent, l.Key, l.KeyConcurrent = 1+w.rand.IntN(3), "input", 1+w.rand.IntN(2)
		}
		w.limits[agent] = l
	}
}

// step is the next thing that happens.
func (w *gateWalk) step() {
	switch k := w.rand.IntN(16); {
	case k < 3:
		w.submit([]string{"one", "order", "wide"}[w.rand.IntN(3)], 1+w.rand.IntN(3))
	case k < 5:
		w.change()
		w.tell()
	case k == 5:
		w.now = w.now.Add(time.Duration(w.rand.IntN(1500)) * time.Millisecond)
	case k == 6 && w.rand.IntN(6) == 0:
		w.start("n2")
		w.adopt(0)
		w.begin()
	default:
		for _, t := range w.all() {
			for _, step := range stepsOf(t) {
				of := fmt.Sprint(t.ID, "/", step)
				c, is := w.known[of]
				if !is || w.rand.IntN(3) > 0 {
					continue
				}
				switch delete(w.known, of); w.rand.IntN(8) {
				case 0:
					w.answer(c, core.CodeAgentError)
				case 1:
					w.answer(c, core.CodeRefused)
				case 2:
					w.unserved(c)
				default:
					w.answer(c, 0)
				}
			}
		}
	}
	w.settle()
	w.judge()
}

// Whatever pauses, limits, keys, breakers, windows and agents that are away do together, nothing that is held leaves, and nothing
// that could go on stands still.
func TestGatesThroughAnything(t *testing.T) {
	ended := 0
	for seed := range uint64(200) {
		w := newGateWalk(t, seed)
		for range 60 {
			w.step()
		}
		for _, task := range w.all() {
			if task.State.Ended() {
				ended++
			}
		}
	}
	if ended < 1000 {
		t.Errorf("%d tasks have ended: that says little", ended)
	}
}

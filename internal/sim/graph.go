package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// The graph world: plans drawn from the seed, of all kinds of steps, with children of their own.

// childDepth is how deep the children of this world have children.
const childDepth = 3

// fanMax is how many steps run side by side at most.
const fanMax = 16

// drawPlans stores the plans of a graph world. Each depth has two types, which have children of the types below.
func (w *World) drawPlans() {
	g := plansOf{rand: rand.New(rand.NewPCG(w.cfg.Seed, 2)), kinds: everyKind, simple: simpleGraphs(), keyLasts: w.books.keyLasts}
	if g.simple {
		g.kinds = everyKind[:1]
	}
	for depth := childDepth; depth >= 0; depth-- {
		types := 2
		if depth == 0 {
			types = 3
		}
		var below []string
		for i := range types {
			p := g.plan(fmt.Sprintf("g%d%c", depth, 'a'+i), depth)
			w.addPlan(p)
			below = append(below, p.Name)
		}
		g.children = below
	}
	w.roots = w.plans[len(w.plans)-3:]
}

// simpleGraphs: the roles know only calls yet.
func simpleGraphs() bool { return false }

// plansOf draws plans.
type plansOf struct {
	rand     *rand.Rand
	kinds    []core.StepKind // what is drawn from
	simple   bool            // calls alone, without expressions
	children []string        // types that steps may have children of
	keyLasts time.Duration
}

// everyKind has the kinds of step as often as they are drawn.
var everyKind = []core.StepKind{
	core.CallStep, core.CallStep, core.CallStep, core.CallStep, core.CallStep, core.CallStep,
	core.WaitStep, core.SignalStep, core.TaskStep, core.EachStep,
}

func (g *plansOf) one(n int) bool { return g.rand.IntN(n) == 0 }

// span is lo to hi milliseconds.
func (g *plansOf) span(lo, hi int) time.Duration {
	return time.Duration(lo+g.rand.IntN(hi-lo+1)) * time.Millisecond
}

func (g *plansOf) plan(name string, depth int) core.Plan {
	p := core.Plan{Name: name, Version: 1, CompleteBy: g.span(8000, 25000)}
	if g.one(4) {
		p.CompleteBy = g.span(1000, 4000)
	}
	if !g.simple && g.one(4) {
		p.UndoReserve = g.span(100, 900)
	}
	if !g.simple && g.one(3) {
		p.Result = "result"
	}
	steps, after := g.shape(depth)
	for i := range steps {
		p.Steps = append(p.Steps, g.step(&p, i, after(i)))
	}
	return p
}

// shape draws how many steps there are and what each comes after.
func (g *plansOf) shape(depth int) (steps int, after func(i int) []int) {
	most := 6
	if depth > 1 {
		most = 3
	}
	steps = 1 + g.rand.IntN(most)
	prev := func(i int) []int { return []int{i - 1} }
	switch g.rand.IntN(5) {
	case 0: // a chain
		after = prev
	case 1: // a fan, gathered at the end
		if steps = 2 + g.rand.IntN(5); depth == 0 && g.one(4) {
			steps = fanMax + 2
		}
		after = func(i int) []int {
			if i < steps-1 || i < 2 {
				return []int{0}
			}
			all := make([]int, i-1)
			for k := range all {
				all[k] = k + 1
			}
			return all
		}
	case 2: // diamonds: 0 → 1, 2 → 3 → 4, 5 → 6
		after = func(i int) []int {
			switch i % 3 {
			case 0:
				return []int{i - 2, i - 1}
			case 1:
				return []int{i - 1}
			}
			return []int{i - 2}
		}
	default: // any
		after = func(i int) (all []int) {
			for a := range i {
				if g.one(2) {
					all = append(all, a)
				}
			}
			return all
		}
	}
	is := after
	return steps, func(i int) []int {
		if i == 0 {
			return nil
		}
		return is(i)
	}
}

func (g *plansOf) step(p *core.Plan, i int, after []int) core.Step {
	s := core.Step{
		Name: fmt.Sprintf("%s%c", p.Name, 'a'+i), After: after, CompleteBy: min(g.span(200, 500), p.CompleteBy),
		OnExhausted: []core.Policy{core.PolicyUndo, core.PolicyUndo, core.PolicyWait, core.PolicyError, core.PolicySkip}[g.rand.IntN(5)],
		Pause:       g.span(100, 500),
	}
	for s.Kind = g.kinds[g.rand.IntN(len(g.kinds))]; s.Kind.Parent() && len(g.children) == 0; {
		s.Kind = g.kinds[g.rand.IntN(len(g.kinds))]
	}
	if g.simple && s.OnExhausted == core.PolicySkip {
		s.OnExhausted = core.PolicyUndo
	}
	if !g.simple && g.one(5) {
		s.When = "when"
	}
	switch s.Kind {
	case core.CallStep:
		g.call(&s)
	case core.WaitStep:
		if s.For = g.span(10, 1500); g.one(3) {
			s.For, s.Until = 0, "until"
		}
	case core.SignalStep:
		s.CompleteBy, s.ResultMax = min(g.span(300, 2500), p.CompleteBy), signalMax
		if i%2 == 0 {
			s.Schema = "true"
		}
	case core.TaskStep, core.EachStep:
		s.Undoable = true
		s.Child = g.children[g.rand.IntN(len(g.children))]
		s.CompleteBy = min(g.span(1000, 9000), p.CompleteBy)
		if g.one(4) {
			s.Input = "input"
		}
		if s.Kind == core.EachStep {
			s.Elements, s.ElementsMax, s.Parallel, s.FailuresMax = "elements", elementsMax, 1+g.rand.IntN(4), g.rand.IntN(3)
		}
	}
	return s
}

// elementsMax is how many elements a list has at most.
const elementsMax = 8

func (g *plansOf) call(s *core.Step) {
	s.Agent, s.Undoable = fmt.Sprintf("agent.%d", g.rand.IntN(5)), !g.one(5)
	s.Backoff, s.BackoffCap = 20*time.Millisecond, 100*time.Millisecond
	s.UndoBackoffCap, s.UndoPatience, s.KeyLasts = 200*time.Millisecond, 20*time.Second, g.keyLasts
	if s.AttemptsMax = 1 + g.rand.IntN(3); g.one(6) {
		s.UndoAttemptsMax = 1
	}
	if g.simple {
		return
	}
	s.Probe = s.Undoable && g.one(4)
	if g.one(6) {
		s.Input = "input"
	}
	if g.one(6) {
		s.Least = min(g.span(50, 150), s.CompleteBy)
	}
	if len(s.After) > 0 && g.one(4) {
		s.Narrow = true
		s.Uses = slices.Clone(s.After[:g.rand.IntN(len(s.After)+1)])
	}
}

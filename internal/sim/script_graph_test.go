package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Plans that are graphs: steps that are no calls, expressions, children.
//
//	step approve kind=signal complete-by=10s after=hold
//	step pause kind=wait for=5s
//	step deliver kind=task child=delivery
//	step payees kind=each child=payee elements=1000 parallel=50 failures-max=2
//	step courier when=no policy=skip
//
// An expression is what it comes to: when is yes, no or fail, until the time since the script began, elements how many
// there are, input and result JSON.

// expressions fills in what a step of a graph has besides a call's own.
func (s *stage) expressions(st *core.Step, a args) {
	st.Kind = core.StepKind(a["kind"])
	if st.Kind == "call" {
		st.Kind = core.CallStep
	}
	st.When, st.Input, st.Until, st.Elements = a["when"], a["input"], a["until"], a["elements"]
	st.For, st.Least = s.duration(a["for"]), s.duration(a["least"])
	st.Child, st.Parallel, st.FailuresMax = a["child"], s.number(a["parallel"]), s.number(a["failures-max"])
	if st.Kind == core.EachStep {
		st.ElementsMax = s.number(a.or("elements-max", "1000"))
	}
	if st.Kind != core.CallStep {
		st.Agent, st.Undoable = "", false
	}
}

// stageExpressions implements scheduler.Expressions.
type stageExpressions struct{ s *stage }

// Bind implements scheduler.Expressions.
func (x stageExpressions) Bind(_ *core.Plan, t *core.Task) core.Asker { return stageAsker{x.s, t} }

// Children implements scheduler.Expressions.
func (x stageExpressions) Children(p *core.Plan, _ *core.Task, step int) func(int, []byte) ([]byte, error) {
	return func(index int, element []byte) ([]byte, error) {
		return fmt.Appendf(nil, `{"of":%s,"index":%d,"with":%q}`, element, index, p.Steps[step].Input), nil
	}
}

// stageAsker answers the expressions of one task.
type stageAsker struct {
	s *stage
	t *core.Task
}

func (a stageAsker) step(step int) *core.Step {
	return &a.s.plans[a.t.Type][a.t.PlanVersion].Steps[step]
}

var errNoKey = errors.New("no such key: gone")

// When implements core.Asker.
func (a stageAsker) When(step int) (bool, error) {
	text := a.step(step).When
	if text == "fail" {
		return false, errNoKey
	}
	return text == "yes", nil
}

// Input implements core.Asker.
func (a stageAsker) Input(step int) ([]byte, error) {
	if text := a.step(step).Input; text != "fail" {
		return []byte(text), nil
	}
	return nil, errNoKey
}

// Until implements core.Asker.
func (a stageAsker) Until(step int) (core.Instant, error) {
	d, err := time.ParseDuration(a.step(step).Until)
	return stageBegan.Add(d), err
}

// Elements implements core.Asker.
func (a stageAsker) Elements(step int) ([]byte, int, error) {
	n := a.s.number(a.step(step).Elements)
	list := bytes.NewBufferString("[")
	for i := range n {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(list, `{"n":%d}`, i)
	}
	list.WriteByte(']')
	return list.Bytes(), n, nil
}

// Result implements core.Asker.
func (a stageAsker) Result() ([]byte, error) {
	if text := a.s.plans[a.t.Type][a.t.PlanVersion].Result; text != "fail" {
		return []byte(text), nil
	}
	return nil, errNoKey
}

// unknownTo leaves out the plans that an old binary cannot read: it knows calls alone, and says which others there are.
func unknownTo(plans []core.Plan) ([]core.Plan, error) {
	var all core.UnreadablePlans
	known := slices.DeleteFunc(slices.Clone(plans), func(p core.Plan) bool {
		i := slices.IndexFunc(p.Steps, func(s core.Step) bool { return s.Kind != core.CallStep })
		if i >= 0 {
			all = append(all, core.UnreadablePlan{Name: p.Name, Version: p.Version, Err: fmt.Errorf("step %s: kind %q", p.Steps[i].Name, p.Steps[i].Kind)})
		}
		return i >= 0
	})
	if len(all) > 0 {
		return known, all
	}
	return known, nil
}

// takesReply reports whether a row ends a command that an agent has, or a signal: not a step that failed before it began.
func (s *stage) takesReply(t *core.Task, j *core.Record, out bool) bool {
	plan := s.plans[t.Type][t.PlanVersion]
	return plan == nil || out && plan.Steps[j.Step].Kind == core.CallStep
}

// endFamily tells and checks the children of a task, and theirs.
func (s *stage) endFamily(all map[string]core.Saved, ids []string, parent string, known map[string]bool) {
	states := map[core.State]int{}
	for _, child := range ids {
		saved := all[child]
		states[saved.Row.State]++
		if len(ids) <= 8 {
			s.show(child, nil)
		}
		s.checkTask(&saved, known)
	}
	if len(ids) > 0 {
		s.line("    children of %s: %s", parent, inWords(states))
	}
}

// families are the ids of the tasks that descend from each task, as stored, in order.
func families(all map[string]core.Saved) map[string][]string {
	of := map[string][]string{}
	for id := range all {
		for i := range len(id) {
			if id[i] == core.ChildMark {
				of[id[:i]] = append(of[id[:i]], id)
			}
		}
	}
	for _, ids := range of {
		slices.Sort(ids)
	}
	return of
}

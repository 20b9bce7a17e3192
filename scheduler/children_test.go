package scheduler_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// lists are the expressions of plans whose lists are the task's input, and whose conditions are true.
type lists struct{}

func (lists) Bind(_ *core.Plan, t *core.Task) core.Asker { return listsOf{t} }

func (lists) Children(*core.Plan, *core.Task, int) func(int, []byte) ([]byte, error) {
	return func(index int, element []byte) ([]byte, error) {
		return fmt.Appendf(nil, `{"index":%d,"of":%s}`, index, element), nil
	}
}

type listsOf struct{ t *core.Task }

func (listsOf) When(int) (bool, error)          { return true, nil }
func (listsOf) Input(int) ([]byte, error)       { return []byte(`{"own":true}`), nil }
func (listsOf) Until(int) (core.Instant, error) { return 0, errors.New("no instant") }
func (listsOf) Result() ([]byte, error)         { return []byte(`{"all":"well"}`), nil }

func (l listsOf) Elements(int) ([]byte, int, error) {
	return l.t.Input, len(core.Elements(l.t.Input)), nil
}

// leg is the plan of children: one call.
func leg(name string) core.Plan {
	return core.Plan{Name: name, Version: 1, Steps: []core.Step{{Name: "go", Agent: "agent.go", Undoable: true, AttemptsMax: 1, Backoff: time.Second}}}
}

// family is a plan of a call, a step with children of type leg, and a call.
func family(kids core.Step) core.Plan {
	kids.Name, kids.After, kids.Undoable = "kids", []int{0}, true
	if kids.Child == "" {
		kids.Child = "leg"
	}
	if kids.AttemptsMax == 0 {
		kids.AttemptsMax = 1
	}
	kids.CompleteBy, kids.Backoff = 50*time.Second, time.Second
	return core.Plan{Name: "family", Version: 1, Steps: []core.Step{
		{Name: "a", Agent: "agent.a", Undoable: true, AttemptsMax: 1, Backoff: time.Second}, kids,
		{Name: "z", Agent: "agent.z", Undoable: true, AttemptsMax: 1, After: []int{1}, Backoff: time.Second},
	}}
}

func newFamily(t *testing.T, kids core.Step, cfg scheduler.Config) *rig {
	t.Helper()
	cfg.Expressions = lists{}
	r := newRig(t, cfg)
	r.store.AddPlan(leg("leg"))
	r.store.AddPlan(family(kids))
	r.mail.PlansChanged = true
	return r
}

func list(n int) []byte {
	b := []byte("[")
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"row":%d}`, i)
	}
	return append(b, ']')
}

// submit submits a task of the family and answers its first step.
func (r *rig) family(id string, input []byte) {
	r.t.Helper()
	r.tasks(0, core.Submission{Type: "family", ID: id, Input: input})
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
}

// serve answers commands until none is left and nothing is to be done: code says how.
func (r *rig) serve(code func(c core.Command) int) {
	r.t.Helper()
	for range 10_000 {
		cmds := r.bus.take()
		if len(cmds) == 0 && len(r.mail.Published) == 0 && (r.shard.NextWake() == 0 || r.shard.NextWake() > r.now) {
			return
		}
		for _, c := range cmds {
			r.answer(c, code(c))
		}
		r.cycle()
	}
	r.t.Fatal("it does not come to an end")
}

func ok(core.Command) int { return 0 }

func (r *rig) counts(id string, each bool) core.ChildCounts {
	r.t.Helper()
	parent := r.store.Task(0, id)
	c, err := r.store.ChildCounts(r.t.Context(), core.AsOf{Partition: 0}, core.Siblings{Parent: parent.Number, Step: 1, First: core.ChildID(id, "kids", 0, parent.Round, each)})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// Steps that come after one begin together, each under a row of its own, and the one that comes after them with the last answer.
func TestFanOfThree(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	plan := core.Plan{Name: "fan", Version: 1, Steps: []core.Step{{Name: "a", Agent: "agent.a"}}}
	for _, name := range []string{"b", "c", "d"} {
		plan.Steps = append(plan.Steps, core.Step{Name: name, Agent: "agent." + name, Undoable: true, After: []int{0}})
	}
	plan.Steps = append(plan.Steps, core.Step{Name: "e", Agent: "agent.e", After: []int{1, 2, 3}})
	r.store.AddPlan(plan)
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "fan", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	cmds := r.bus.take()
	if len(cmds) != 3 || cmds[0].Seq == cmds[1].Seq || cmds[1].Seq == cmds[2].Seq {
		t.Fatalf("%+v", cmds)
	}
	r.answer(cmds[1], 0)
	r.cycle()
	r.answer(cmds[1], 0) // once more: it is out under the number no more
	r.answer(cmds[2], 0)
	r.cycle()
	if more := r.bus.take(); len(more) != 0 {
		t.Fatalf("%+v", more)
	}
	r.answer(cmds[0], 0)
	r.cycle()
	last := r.one()
	var steps []string
	for _, res := range last.Results {
		steps = append(steps, res.Step)
	}
	if last.Step != "e" || !slices.Equal(steps, []string{"a", "b", "c", "d"}) {
		t.Errorf("%s with %v", last.Step, steps)
	}
	r.answer(last, 0)
	r.cycle()
	r.state("t1", core.StateProcessed)
	if r.shard.Stats.Stale == 0 {
		t.Error("an answer was taken twice")
	}
}

// A branch whose agent is full waits while the others of its task are out, and begins when there is room, though nothing
// else of the task happens.
func TestBranchWaitsForRoom(t *testing.T) {
	r := newRig(t, scheduler.Config{AgentWindow: 1})
	plan := core.Plan{Name: "fork", Version: 1, Steps: []core.Step{{Name: "b", Agent: "agent.b"}, {Name: "c", Agent: "agent.c"}}}
	r.store.AddPlan(plan)
	r.store.AddPlan(orderPlan("busy", 1, "c"))
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "busy", ID: "t0", Input: []byte(`{}`)})
	r.cycle()
	busy := r.one()
	r.tasks(0, core.Submission{Type: "fork", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	first := r.one()
	if first.Step != "b" {
		t.Fatalf("%+v", first)
	}
	r.state("t1", core.StateProcessing)
	r.answer(busy, 0)
	r.cycle()
	second := r.one()
	if second.Step != "c" || second.Task != "t1" {
		t.Fatalf("%+v", second)
	}
	r.answer(first, 0)
	r.answer(second, 0)
	r.cycle()
	r.state("t1", core.StateProcessed)
}

// A child is born in the commit by which its parent's step begins, and its end and what follows for the parent are in one
// commit. Meanwhile neither is held in memory where nothing is at work.
func TestChild(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: []byte(`{"n":1}`), Trace: "00-trace-01", Labels: []core.Label{{Key: "k", Value: "v"}}})
	r.cycle()
	r.answer(r.one(), 0)
	r.news()
	r.cycle()
	r.expect("commit 2", "do t1~kids/go/0 try 1") // the parent's row, and the birth
	r.state("t1", core.StatePending)
	kid := r.state("t1~kids", core.StateProcessing)
	parent := r.store.Task(0, "t1")
	if kid.Parent != parent.Number || kid.ParentStep != 1 || kid.ChildIndex != 0 || kid.Trace != "00-trace-01" || len(kid.Labels) != 1 || string(kid.Input) != `{"n":1}` {
		t.Errorf("%+v", kid)
	}
	if due := parent.Steps[1].Due; kid.Deadline != due {
		t.Errorf("the child's deadline is %d, want that of the step, %d", kid.Deadline, due)
	}
	if n := r.shard.Load(0); n != 2 {
		t.Errorf("%d tasks are in flight, want parent and child", n)
	}
	r.answer(r.one(), 0)
	r.news()
	r.cycle()
	r.expect("commit 2", "live t1~kids processed", "publish t1~kids processed 1", "do t1/z/0 try 1")
	r.serve(ok)
	r.state("t1", core.StateProcessed)
	if n := r.shard.Load(0); n != 0 {
		t.Errorf("%d tasks are left in flight", n)
	}
}

// A task whose first step has a child gets it by the commit after the one that makes it: only then it is known to be no
// duplicate. A crash in between is made good by the next owner.
func TestChildOfANewTask(t *testing.T) {
	for _, crash := range []bool{false, true} {
		r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
		first := core.Plan{Name: "first", Version: 1, Steps: []core.Step{{Name: "kids", Kind: core.TaskStep, Child: "leg", Undoable: true, AttemptsMax: 1}}}
		r.store.AddPlan(first)
		commits := 0
		r.store.BeforeCommit = func(*core.Batch) error {
			if commits++; crash && commits == 2 {
				return errCut
			}
			return nil
		}
		r.tasks(0, core.Submission{Type: "first", ID: "t1", Input: []byte(`{}`)})
		if _, err := r.try(false); crash != (err != nil) {
			t.Fatal(err)
		}
		if crash {
			if r.store.Task(0, "t1~kids") != nil {
				t.Fatal("the child is there already")
			}
			r.store.BeforeCommit = nil
			r.start("n2")
			r.adopt(0)
			r.cycle()
		}
		r.serve(ok)
		r.state("t1", core.StateProcessed)
		r.state("t1~kids", core.StateProcessed)
	}
}

// The database refuses a child's birth and, in the same commit, a later row of its parent: another step of it is impossible.
// The child is stored in error, as its parent is, and the ends of both are told.
func TestRefusedChildAndParent(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	kids := core.Step{Name: "kids", Kind: core.TaskStep, Child: "leg", Undoable: true, AttemptsMax: 1}
	none := kids
	none.Name, none.Child = "none", "unknown"
	r.store.AddPlan(core.Plan{Name: "two", Version: 1, Steps: []core.Step{kids, none}})
	r.store.RefuseRow = func(w *core.TaskWrite) bool {
		return w.Birth && w.Task.ID == "t1~kids" && w.Task.Trace != "" || !w.Birth && w.Task.State == core.StateUndoing
	}
	r.tasks(0, core.Submission{Type: "two", ID: "t1", Input: []byte(`{}`), Trace: "00-trace-01"})
	r.cycle()
	r.state("t1", core.StateError)
	r.state("t1~kids", core.StateError)
	for _, end := range []string{"publish t1~kids error 1", "publish t1 error 2"} {
		if !slices.Contains(r.bus.list, end) {
			t.Errorf("no %q in %q", end, r.bus.list)
		}
	}
}

// A crash in the middle of a batch that is committed in parts, for one of its rows is refused: the children that were in the
// parts to come are born after the takeover.
func TestCrashBetweenParts(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "first", Version: 1, Steps: []core.Step{{Name: "kids", Kind: core.TaskStep, Child: "leg", Undoable: true, AttemptsMax: 1}}})
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Birth && w.Task.ID == "t1~kids" && w.Task.Trace != "" }
	r.store.BeforeCommit = func(b *core.Batch) error {
		if len(b.Writes) == 1 && b.Writes[0].Task.ID == "t2~kids" {
			return errCut
		}
		return nil
	}
	first := core.Submission{Type: "first", ID: "t1", Input: []byte(`{}`), Trace: "00-trace-01"}
	second := first
	second.ID = "t2"
	r.tasks(0, first, second)
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	r.state("t1~kids", core.StateError)
	r.store.BeforeCommit = nil
	r.start("n2")
	r.adopt(0)
	r.cycle()
	r.state("t2~kids", core.StateProcessing)
}

// cutBeforeTheParentHears is a family whose child is processed, in a part of a batch; the part by which its parent would hear of it
// was cut off.
func cutBeforeTheParentHears(t *testing.T) *rig {
	t.Helper()
	r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "telling"}, scheduler.Config{})
	telling := leg("telling")
	telling.Result = "all"
	r.store.AddPlan(telling)
	r.family("t1", []byte(`{}`))
	r.cycle()
	kid := r.one()
	r.tasks(0, order("t2"))
	r.cycle()
	other := r.one()
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Task.ID == "t2" } // the batch is committed in parts
	r.store.BeforeCommit = func(b *core.Batch) error {
		has := func(id string) bool {
			return slices.ContainsFunc(b.Writes, func(w core.TaskWrite) bool { return w.Task.ID == id })
		}
		if has("t1") && !has("t1~kids") {
			return errCut
		}
		return nil
	}
	r.answer(kid, 0)
	r.answer(other, 0)
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	return r
}

// A crash between the part of a batch by which a child ends and that by which its parent hears of it: the next owner finds how
// the child ended, and its result is the step's.
func TestCrashBeforeTheParentHears(t *testing.T) {
	r := cutBeforeTheParentHears(t)
	result := r.state("t1~kids", core.StateProcessed).Result
	if step := r.store.Task(0, "t1").Steps[1]; step.Status != core.StepRunning || len(result) == 0 {
		t.Fatalf("step %+v, its child came to %q", step, result)
	}
	r.store.RefuseRow, r.store.BeforeCommit = nil, nil
	r.start("n2")
	r.adopt(0)
	r.cycle()
	r.cycle()
	if step := r.store.Task(0, "t1").Steps[1]; step.Status != core.StepDone || string(step.Result) != string(result) {
		t.Errorf("step %+v, want it done with %q", step, result)
	}
}

// The database refuses a child's birth, and before the parent's row can say so the partition has another owner: that one
// finds a parent whose step is out and has no child, though another child of it was there, and does not let it stand.
func TestRefusedChildIsHeardOfAfterATakeover(t *testing.T) {
	one := core.Step{Name: "one", Kind: core.TaskStep, Child: "leg", Undoable: true, AttemptsMax: 1}
	two := one
	two.Name, two.After = "two", []int{0}
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "twice", Version: 1, Steps: []core.Step{one, two}})
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Birth && w.Task.ID == "t1~two" }
	r.tasks(0, core.Submission{Type: "twice", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.bus.take()
	r.start("n2") // its commits are not numbered after those of n1
	r.adopt(0)
	r.cycle()
	r.answer(r.one(), 0)
	r.store.BeforeCommit = func(b *core.Batch) error {
		if slices.ContainsFunc(b.Writes, func(w core.TaskWrite) bool { return w.Task.ID == "t1" && w.Task.State == core.StateUndoing }) {
			return errCut
		}
		return nil
	}
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	r.state("t1", core.StatePending)
	r.store.BeforeCommit = nil
	r.start("n3")
	r.adopt(0)
	r.cycle()
	r.state("t1", core.StateUndoing)
}

// A child that is undone fails its parent's step, with its text; tried again, the same child begins again.
func TestChildUndone(t *testing.T) {
	for _, tries := range []int{1, 2} {
		r := newFamily(t, core.Step{Kind: core.TaskStep, AttemptsMax: tries}, scheduler.Config{})
		r.family("t1", []byte(`{}`))
		r.serve(func(c core.Command) int {
			if c.Step == "go" && !c.Undo && c.Round == 0 {
				return core.CodeRefused
			}
			return 0
		})
		r.state("t1~kids", core.StateUndone)
		if tries == 1 {
			parent := r.state("t1", core.StateUndone)
			if !strings.Contains(parent.Why, "child t1~kids was undone: code 422") {
				t.Errorf("%q", parent.Why)
			}
			continue
		}
		r.now = r.now.Add(10 * time.Second)
		r.cycle()
		kid := r.state("t1~kids", core.StateProcessing)
		if due := r.store.Task(0, "t1").Steps[1].Due; kid.Deadline != due || kid.Deadline == r.now.Add(core.DefaultTaskCompleteBy) {
			t.Errorf("its deadline is %d, want that of the step, %d", kid.Deadline, due)
		}
		r.serve(ok)
		r.state("t1", core.StateProcessed)
		if kid := r.state("t1~kids", core.StateProcessed); kid.Round != 1 {
			t.Errorf("round %d", kid.Round)
		}
	}
}

// A crash between the commit by which a step is tried again and that by which its child begins again: the next owner has it
// begin, and does not take its end in the attempt before for that of this one.
func TestCrashBeforeAChildBeginsAgain(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, AttemptsMax: 2}, scheduler.Config{})
	once := func(c core.Command) int {
		if c.Step == "go" && !c.Undo && c.Round == 0 {
			return core.CodeRefused
		}
		return 0
	}
	r.family("t1", []byte(`{}`))
	r.serve(once)
	r.state("t1~kids", core.StateUndone)
	r.store.BeforeCommit = func(b *core.Batch) error {
		if slices.ContainsFunc(b.Writes, func(w core.TaskWrite) bool { return w.Task.ID == "t1~kids" }) {
			return errCut
		}
		return nil
	}
	r.now = r.now.Add(10 * time.Second)
	if _, err := r.try(false); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if step := r.store.Task(0, "t1").Steps[1]; step.Status != core.StepRunning || step.Attempt != 2 {
		t.Fatalf("step %+v, want it tried again", step)
	}
	r.store.BeforeCommit = nil
	r.start("n2")
	r.adopt(0)
	r.cycle()
	r.serve(once)
	r.state("t1", core.StateProcessed)
}

// A child that is undone in the instant in which its parent's step is tried again is of the attempt before: it begins again.
//
// covers: L20
func TestChildUndoneInTheInstantOfTheRetry(t *testing.T) {
	for kind, kids := range map[string]core.Step{
		"child": {Kind: core.TaskStep, AttemptsMax: 2},
		"each":  {Kind: core.EachStep, Elements: "input", ElementsMax: 3, Parallel: 3, AttemptsMax: 2},
	} {
		t.Run(kind, func(t *testing.T) {
			r := newFamily(t, kids, scheduler.Config{})
			r.noJitter = true
			r.start("n1")
			r.adopt(0)
			r.family("t1", list(3))
			r.serve(func(c core.Command) int {
				if c.Step == "go" && !c.Undo && c.Round == 0 {
					return core.CodeRefused
				}
				return 0
			})
			r.now++
			r.cycle()
			r.serve(ok)
			r.state("t1", core.StateProcessed)
		})
	}
}

// So is one that ended, as the clock of an owner before says, after that.
func TestChildUndoneByAFastClock(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "two", AttemptsMax: 2}, scheduler.Config{})
	two := orderPlan("two", 1, "go", "on")
	two.Steps[0].Undoable, two.Steps[1].Undoable = false, false
	r.store.AddPlan(two)
	r.family("t1", []byte(`{}`))
	first := r.one()
	r.now = r.now.Add(9 * time.Second)
	r.answer(first, 0)
	r.cycle()
	second := r.one()
	r.now = r.now.Add(-9 * time.Second)
	r.start("n2")
	r.adopt(0)
	r.bus.take()
	r.answer(second, core.CodeRefused)
	r.cycle()
	r.serve(ok)
	r.state("t1~kids", core.StateUndone)
	for range 20 {
		r.now = r.now.Add(time.Second)
		r.cycle()
		r.serve(ok)
	}
	r.state("t1", core.StateProcessed)
}

// What makes a child impossible fails the step at once, with the reason.
func TestChildImpossible(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "nobody"}, scheduler.Config{})
	r.family("t1", []byte(`{}`))
	r.serve(ok)
	if parent := r.state("t1", core.StateUndone); !strings.Contains(parent.Why, `no plan is stored for type "nobody"`) {
		t.Errorf("%q", parent.Why)
	}
	deep := newRig(t, scheduler.Config{})
	deep.store.AddPlan(core.Plan{Name: "deep", Version: 1, Steps: []core.Step{{Name: "d", Kind: core.TaskStep, Child: "deep", Undoable: true, AttemptsMax: 1}}})
	deep.mail.PlansChanged = true
	deep.tasks(0, core.Submission{Type: "deep", ID: "t1", Input: []byte(`{}`)})
	deep.cycle()
	deep.serve(ok)
	deep.state("t1", core.StateUndone)
	last := deep.state("t1"+strings.Repeat("~d", core.ChildDepthMax), core.StateUndone)
	if !strings.Contains(last.Why, `of type "deep" would be 9 deep, the limit is 8`) {
		t.Errorf("%q", last.Why)
	}
	if deep.store.Task(0, last.ID+"~d") != nil {
		t.Error("it is there")
	}
}

// An each bears its children a few at a time, counts those that fail, and writes no row of its parent for any of them.
func TestEach(t *testing.T) {
	const n = 1000
	for _, most := range []int{3, 2} {
		r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: n, Parallel: 100, FailuresMax: most, Input: "element"}, scheduler.Config{BatchMax: 150})
		r.family("t1", list(n))
		fails := []string{"t1~kids~7", "t1~kids~500", "t1~kids~999"}
		r.serve(func(c core.Command) int {
			if c.Step == "go" && !c.Undo {
				if !bytes.Contains(c.Input, []byte(`"of":{"row":`)) {
					t.Fatalf("input %s", c.Input)
				}
			}
			if slices.Contains(fails, c.Task) && !c.Undo {
				return core.CodeRefused
			}
			return 0
		})
		parent := r.store.Task(0, "t1")
		counts := r.counts("t1", true)
		if most == 3 {
			r.state("t1", core.StateProcessed)
			if counts != (core.ChildCounts{Born: n, Done: n - 3, Undone: 3}) {
				t.Errorf("%+v", counts)
			}
			if got := string(parent.Steps[1].Result); got != `{"done":997,"failed":3}` {
				t.Errorf("result %s", got)
			}
		} else {
			r.state("t1", core.StateUndone)
			if !strings.Contains(parent.Why, "3 of 1000 children were undone, the limit is 2; child t1~kids~7 was undone: code 422") {
				t.Errorf("%q", parent.Why)
			}
			if counts != (core.ChildCounts{Born: n, Undone: n}) {
				t.Errorf("%+v", counts)
			}
		}
		if rows := parent.Seq; rows > 10 {
			t.Errorf("%d rows of the parent:\n%s", rows, r.store.History(0, "t1"))
		}
		if got := r.shard.Load(0); got != 0 {
			t.Errorf("%d tasks are left in flight", got)
		}
	}
}

// No more children are open than the step says, and no more than a partition takes.
func TestEachParallel(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 50, Parallel: 7}, scheduler.Config{})
	r.family("t1", list(50))
	for range 3 {
		r.cycle()
	}
	cmds := r.bus.take()
	if len(cmds) != 7 {
		t.Fatalf("%d children are open, want 7", len(cmds))
	}
	r.answer(cmds[0], 0)
	r.answer(cmds[1], 0)
	r.cycle()
	if more := r.bus.take(); len(more) != 2 || more[0].Task != "t1~kids~7" {
		t.Fatalf("%+v", more)
	}
}

// An owner that takes over in the middle goes on where the children's rows say that it was.
func TestTakeoverMidEach(t *testing.T) {
	const n = 40
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: n, Parallel: 10, FailuresMax: 5}, scheduler.Config{})
	r.family("t1", list(n))
	r.cycle()
	answered := 0
	for answered < 15 {
		for _, c := range r.bus.take() {
			if answered++; answered > 15 {
				break // the others are lost with the owner
			}
			code := 0
			if answered%5 == 0 {
				code = core.CodeRefused
			}
			r.answer(c, code)
		}
		r.cycle()
	}
	before := r.counts("t1", true)
	if before.Done == 0 || before.Undone == 0 || before.Running == 0 || before.Born == n {
		t.Fatalf("%+v", before)
	}
	r.bus.take()
	r.mail.Replies = nil
	r.now = r.now.Add(time.Second) // those that were undone are of this attempt all the same
	r.start("n2")
	r.adopt(0)
	r.serve(ok)
	r.state("t1", core.StateProcessed)
	if after := r.counts("t1", true); after.Undone != before.Undone || after.Born != n || after.Done != n-before.Undone {
		t.Errorf("%+v, before %+v", after, before)
	}
}

// Wherever an owner dies, between any two commits, the next one brings the family to its end, with every child once.
func TestKilledBetweenBatches(t *testing.T) {
	for die := 1; ; die++ {
		r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 6, Parallel: 2, FailuresMax: 6, AttemptsMax: 2}, scheduler.Config{BatchMax: 2})
		commits, died := 0, false
		r.store.BeforeCommit = func(*core.Batch) error {
			if commits++; commits == die {
				died = true
				return errCut
			}
			return nil
		}
		r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: list(6)})
		tasks := r.mail.Tasks
		for range 200 {
			r.now = r.now.Add(200 * time.Millisecond) // an undo waits until what was sent twice cannot take effect
			if _, err := r.try(false); err != nil {
				r.bus.take()
				r.mail.Replies = nil
				r.start("n2")
				r.mail.Tasks = tasks
				r.adopt(0)
				continue
			}
			for _, c := range r.bus.take() {
				code := 0
				if c.Task == "t1~kids~3" && !c.Undo {
					code = core.CodeRefused
				}
				r.answer(c, code)
			}
		}
		r.state("t1", core.StateProcessed)
		if got := r.counts("t1", true); got != (core.ChildCounts{Born: 6, Done: 5, Undone: 1}) {
			t.Fatalf("died at commit %d: %+v", die, got)
		}
		if !died {
			return
		}
	}
}

// A parent that is undone undoes its children first, also those that were processed, the newest first and a few at a time.
func TestUndoOfProcessedChildren(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 10, Parallel: 3}, scheduler.Config{})
	r.family("t1", list(10))
	r.serve(func(c core.Command) int {
		if c.Step == "z" && !c.Undo {
			return core.CodeRefused
		}
		if c.Undo && c.Task == "t1" {
			if got := r.counts("t1", true); got.Undone != 10 {
				t.Errorf("step %s of the parent is undone before its children are: %+v", c.Step, got)
			}
		}
		return 0
	})
	r.state("t1", core.StateUndone)
	var undone []string
	for _, line := range r.bus.list {
		if strings.HasPrefix(line, "undo t1~kids") {
			undone = append(undone, line)
		}
	}
	if len(undone) != 10 || !strings.HasPrefix(undone[0], "undo t1~kids~9/") {
		t.Errorf("%q", undone)
	}
	if kid := r.state("t1~kids~4", core.StateUndone); kid.Why != "it is a part of task t1, which is undone" {
		t.Errorf("%q", kid.Why)
	}
}

// A cancel while children are at work undoes them as well; a takeover in the middle of it begins the sweep again.
func TestUndoWhileRunning(t *testing.T) {
	for _, crash := range []bool{false, true} {
		r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 20, Parallel: 5}, scheduler.Config{})
		r.family("t1", list(20))
		r.cycle()
		for _, c := range r.bus.take()[:3] {
			r.answer(c, 0)
		}
		r.cycle()
		r.control(core.Control{Kind: core.EventCancel, ID: "t1", Actor: "person"})
		r.cycle()
		r.cycle()
		if crash {
			r.bus.take()
			r.start("n2")
			r.adopt(0)
		}
		for range 20 { // answers to what was out, and complete-bys where they are lost
			r.serve(ok)
			r.now = r.now.Add(5 * time.Second)
			due, err := r.store.Overdue(t.Context(), 0, r.now, core.Due{}, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range due {
				r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{d.Number}, Actor: "supervisor"})
			}
			r.cycle()
		}
		r.state("t1", core.StateUndone)
		if got := r.counts("t1", true); got.Undone != got.Born || got.Born >= 20 {
			t.Errorf("crash %v: %+v", crash, got)
		}
		if n := r.shard.Load(0); n != 0 {
			t.Errorf("%d tasks are left in flight", n)
		}
	}
}

// A child that is being undone already when its parent is to be is waited for: nothing that comes before it is undone before.
func TestUndoOfWhatIsBeingUndone(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 2, Parallel: 2, Child: "pair"}, scheduler.Config{})
	r.store.AddPlan(orderPlan("pair", 1, "p", "q"))
	r.family("t1", list(2))
	var held, parents []core.Command
	serve := func() {
		for range 20 {
			for _, c := range r.bus.take() {
				switch {
				case c.Undo && c.Task == "t1~kids~0":
					held = append(held, c)
				case c.Undo && c.Task == "t1":
					parents = append(parents, c)
					r.answer(c, 0)
				case c.Task == "t1~kids~0" && c.Step == "q":
					r.answer(c, core.CodeRefused)
				default:
					r.answer(c, 0)
				}
			}
			r.cycle()
		}
	}
	serve()
	r.state("t1~kids~0", core.StateUndoing)
	r.state("t1~kids~1", core.StateProcessed)
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Actor: "person"})
	serve()
	r.state("t1~kids~1", core.StateUndone)
	if len(held) != 1 || len(parents) > 0 {
		t.Fatalf("while the undo of %v is at work %v leave", held, parents)
	}
	r.answer(held[0], 0)
	r.cycle()
	serve()
	r.state("t1~kids~0", core.StateUndone)
	r.state("t1", core.StateUndone)
}

// A child whose undo gives up leaves its parent's step as an undo that gave up.
func TestChildUndoGivesUp(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	r.family("t1", []byte(`{}`))
	r.serve(func(c core.Command) int {
		if c.Step == "z" || c.Step == "go" && c.Undo {
			return core.CodeRefused
		}
		return 0
	})
	r.state("t1~kids", core.StateError)
	parent := r.state("t1", core.StateError)
	if !strings.Contains(parent.Why, "the undo of step kids gave up: child t1~kids: ") {
		t.Errorf("%q", parent.Why)
	}
	r.control(core.Control{Kind: core.EventUndo, ID: "t1", Actor: "person"})
	r.cycle()
	r.serve(ok)
	r.state("t1~kids", core.StateUndone)
	r.state("t1", core.StateUndone)
}

// A child in error waits for an operator, and its parent with it.
func TestChildInError(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "strict"}, scheduler.Config{})
	strict := leg("strict")
	strict.Steps[0].OnExhausted = core.PolicyError
	r.store.AddPlan(strict)
	r.family("t1", []byte(`{}`))
	r.serve(func(core.Command) int { return core.CodeRefused })
	r.state("t1~kids", core.StateError)
	r.state("t1", core.StatePending)
	if n := r.shard.Load(0); n != 0 {
		t.Errorf("%d tasks are in flight, though nothing is at work", n)
	}
	r.control(core.Control{Kind: core.EventCancel, ID: "t1~kids", Actor: "person"}) // is its parent's to ask
	r.control(core.Control{Kind: core.EventResubmit, ID: "t1~kids", Actor: "person"})
	r.cycle()
	r.serve(ok)
	r.state("t1", core.StateProcessed)
}

// A request that would end a child by a row which the database refuses lets go of the partition, because its parent may have
// gone on in the same batch; read again it is refused, and the partition goes on. Another request is not.
func TestRefusedRowOfAnEndedChild(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "strict"}, scheduler.Config{})
	strict := leg("strict")
	strict.Steps[0].OnExhausted = core.PolicyError
	r.store.AddPlan(strict)
	r.family("t1", []byte(`{}`))
	r.serve(func(core.Command) int { return core.CodeRefused })
	r.state("t1~kids", core.StateError)
	r.store.RefuseRow = func(w *core.TaskWrite) bool {
		return len(w.Records) > 0 && string(w.Records[0].Result) == `"no"`
	}
	accept := core.Control{Kind: core.EventAccept, ID: "t1~kids", Actor: "olga", Step: "go", Result: []byte(`"no"`)}
	late := core.Control{Kind: core.EventResubmit, ID: "t1~kids", Actor: "otto"} // in the same round, and changes nothing
	for _, lets := range []bool{true, false} {
		r.control(accept)
		if lets {
			r.control(late)
		}
		lost, err := r.try(false)
		if err != nil || lets != (len(lost) == 1) {
			t.Fatalf("lost %v, %v", lost, err)
		}
		if lets {
			r.mail.Controls = nil
			r.adopt(0)
		}
		r.state("t1~kids", core.StateError)
		r.state("t1", core.StatePending)
	}
	accept.Result = []byte(`"yes"`)
	r.control(accept)
	r.cycle()
	r.serve(ok)
	r.state("t1", core.StateProcessed)
}

// The memory of a parent does not grow with its children.
func TestEachMemoryFlat(t *testing.T) {
	const n = 2000
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: n, Parallel: 20}, scheduler.Config{Memory: scheduler.NewMemory(math.MaxInt64)})
	r.cfg.Memory = scheduler.NewMemory(math.MaxInt64)
	r.start("n1")
	r.adopt(0)
	r.family("t1", list(n))
	r.cycle()
	peak, low := int64(0), int64(math.MaxInt64)
	r.serve(func(core.Command) int {
		peak, low = max(peak, r.cfg.Memory.Used()), min(low, r.cfg.Memory.Used())
		return 0
	})
	r.state("t1", core.StateProcessed)
	if peak-low > 60_000 {
		t.Errorf("memory went from %d to %d bytes", low, peak)
	}
	if r.cfg.Memory.Used() != 0 {
		t.Errorf("%d bytes are held", r.cfg.Memory.Used())
	}
}

// The database refuses the row by which a step with children begins: the children of that commit are not made.
func TestRefusedParent(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: []byte(`{}`)}, core.Submission{Type: "family", ID: "t2", Input: []byte(`{}`)})
	r.cycle()
	r.store.RefuseRow = func(w *core.TaskWrite) bool {
		return w.Task.ID == "t1" && w.Records[0].Kind == core.KindDone
	}
	for _, c := range r.bus.take() {
		r.answer(c, 0)
	}
	r.cycle()
	r.serve(ok)
	r.state("t1", core.StateError)
	if kid := r.store.Task(0, "t1~kids"); kid != nil {
		t.Errorf("the child of the task that was refused is %s", kid.State)
	}
	r.state("t2", core.StateProcessed)
}

// The database refuses the row of a child's birth: the child is in error with its input kept, and a person decides.
func TestRefusedChild(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 4, Parallel: 4}, scheduler.Config{})
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Birth && w.Task.ID == "t1~kids~2" && w.Task.Trace != "" }
	r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: list(4), Trace: "00-trace-01"})
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	r.serve(ok)
	r.state("t1", core.StateProcessing)
	kid := r.state("t1~kids~2", core.StateError)
	if got := r.shard.Load(0); got > 1 {
		t.Errorf("%d tasks are in flight, want the parent alone", got)
	}
	if kid.Parent == 0 {
		t.Error("it is no child any more")
	}
	r.control(core.Control{Kind: core.EventResolve, ID: "t1~kids~2", As: core.StateProcessed, Actor: "person"})
	r.cycle()
	r.serve(ok)
	r.state("t1", core.StateProcessed)
}

// A child whose birth was refused never had steps, so that it cannot begin again when its step is tried again: it counts as
// the undone one that it is, and the step does not end well without it.
func TestRefusedChildIsTriedAgain(t *testing.T) {
	for failures, want := range []core.State{core.StateUndone, core.StateProcessed} {
		r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 4, Parallel: 4, AttemptsMax: 2, FailuresMax: failures}, scheduler.Config{})
		r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Birth && w.Task.ID == "t1~kids~2" && w.Task.Trace != "" }
		r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: list(4), Trace: "00-trace-01"})
		r.cycle()
		r.answer(r.one(), 0)
		r.cycle()
		broken := failures == 1 // a second one is undone in the first attempt, and done in the second
		r.serve(func(c core.Command) int {
			if broken && c.Task == "t1~kids~1" {
				broken = false
				return core.CodeRefused
			}
			return 0
		})
		r.state("t1~kids~2", core.StateError)
		r.control(core.Control{Kind: core.EventUndo, ID: "t1~kids~2", Actor: "person"})
		r.cycle()
		r.serve(ok)
		parent := r.state("t1", core.StateProcessing)
		r.now = r.now.Add(time.Minute / 6)
		r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{parent.Number}, Actor: "supervisor"})
		r.cycle()
		r.serve(ok)
		r.state("t1~kids~2", core.StateUndone)
		r.state("t1", want)
	}
}

// The database refuses whatever is in the row of the first child: the step fails, and no other child is born that nobody
// would find.
func TestRefusedFirstChild(t *testing.T) {
	each := core.Step{Name: "kids", Kind: core.EachStep, Child: "leg", Undoable: true, AttemptsMax: 1, Elements: "input", ElementsMax: 4, Parallel: 4}
	r := newFamily(t, each, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "first", Version: 1, Steps: []core.Step{each}})
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Birth && strings.HasSuffix(w.Task.ID, "~kids~0") }
	r.tasks(0, core.Submission{Type: "first", ID: "t0", Input: list(4)})
	r.cycle()
	r.serve(ok)
	r.family("t1", list(4))
	r.serve(ok)
	for _, id := range []string{"t0", "t1"} {
		r.state(id, core.StateUndone)
		for i := range 4 {
			if kid := r.store.Task(0, core.ChildID(id, "kids", i, 0, true)); kid != nil {
				t.Errorf("child %s is there, %s", kid.ID, kid.State)
			}
		}
	}
	if got := r.shard.Load(0); got != 0 {
		t.Errorf("%d tasks are left in flight", got)
	}
}

// The database refuses the row by which a child ends: what its parent would have come to by that is not committed, and the
// family goes on as it is stored.
func TestRefusedEndOfChild(t *testing.T) {
	for _, each := range []bool{false, true} {
		kids := core.Step{Kind: core.TaskStep}
		if each {
			kids = core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 2, Parallel: 2}
		}
		r := newFamily(t, kids, scheduler.Config{})
		last := core.ChildID("t1", "kids", 0, 0, each)
		r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Task.ID == last && w.Task.State == core.StateProcessed }
		r.family("t1", list(2))
		r.cycle()
		cmds := r.bus.take()
		slices.Reverse(cmds) // of an each the other child ends first
		for _, c := range cmds {
			r.answer(c, 0)
		}
		lost := r.cycle()
		r.state(last, core.StateError)
		if parent := r.store.Task(0, "t1"); parent.State.Ended() || parent.Steps[1].Status == core.StepDone {
			t.Errorf("its parent is %s:\n%s", parent.State, r.store.History(0, "t1"))
		}
		if len(lost) != 1 {
			t.Fatalf("partitions %v were let go, want the one", lost)
		}
		r.store.RefuseRow = nil
		r.start("n2")
		r.adopt(0)
		r.serve(ok)
		r.control(core.Control{Kind: core.EventResolve, ID: last, As: core.StateProcessed, Actor: "person"})
		r.cycle()
		r.serve(ok)
		r.state("t1", core.StateProcessed)
	}
}

// The end of one child is refused, after that of its brother has changed their parent's row in the same batch: the row says
// nothing of the refused one.
func TestRefusedEndBehindItsParent(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep}, scheduler.Config{})
	two := family(core.Step{Kind: core.TaskStep})
	two.Name, two.Steps = "two", two.Steps[:2]
	more := two.Steps[1]
	more.Name = "more"
	two.Steps = append(two.Steps, more)
	r.store.AddPlan(two)
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "two", ID: "t1", Input: list(1)})
	r.cycle()
	r.answer(r.one(), 0)
	r.cycle()
	r.store.RefuseRow = func(w *core.TaskWrite) bool {
		return w.Task.ID == "t1~more" && w.Task.State == core.StateProcessed
	}
	cmds := r.bus.take()
	if len(cmds) != 2 {
		t.Fatalf("%d commands, want two", len(cmds))
	}
	slices.SortFunc(cmds, func(a, b core.Command) int { return cmp.Compare(a.Task, b.Task) }) // that of kids first
	for _, c := range cmds {
		r.answer(c, 0)
	}
	r.cycle()
	r.state("t1~more", core.StateError)
	if parent := r.store.Task(0, "t1"); parent.State.Ended() || parent.Steps[2].Status == core.StepDone {
		t.Errorf("its parent is %s:\n%s", parent.State, r.store.History(0, "t1"))
	}
}

// A child is at its end as soon as it is born, and the database refuses its row: its parent does not count it as done.
func TestRefusedChildBornAtItsEnd(t *testing.T) {
	for _, bareToo := range []bool{false, true} {
		r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "none"}, scheduler.Config{})
		r.store.AddPlan(core.Plan{Name: "none", Version: 1, Steps: []core.Step{{Name: "each", Kind: core.EachStep, Child: "leg", Elements: "input", ElementsMax: 1, Undoable: true, AttemptsMax: 1}}})
		r.mail.PlansChanged = true
		r.store.RefuseRow = func(w *core.TaskWrite) bool {
			return w.Birth && w.Task.ID == "t1~kids" && (bareToo || w.Task.State == core.StateProcessed)
		}
		r.family("t1", []byte(`[]`))
		r.serve(ok)
		if bareToo {
			if parent := r.state("t1", core.StateUndone); !strings.Contains(parent.Why, "child t1~kids: the database refuses the task's row") {
				t.Errorf("%q", parent.Why)
			}
			continue
		}
		r.state("t1~kids", core.StateError)
		r.state("t1", core.StatePending)
	}
}

// One child of many is refused, whatever is in its row, and the owner dies before it has told the parent: the next one
// finds that it is missing.
func TestRefusedChildIsMissed(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 4, Parallel: 4}, scheduler.Config{})
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Birth && w.Task.ID == "t1~kids~2" }
	r.family("t1", list(4))
	for r.store.Task(0, "t1~kids~3") == nil {
		r.cycle()
	}
	r.bus.take()
	r.start("n2")
	r.adopt(0)
	r.serve(ok)
	r.now = r.now.Add(time.Minute) // the calls before the crash can take no effect any more
	r.cycle()
	r.serve(ok)
	parent := r.state("t1", core.StateUndone)
	if want := "1 of the first 4 children of step kids are missing"; !strings.Contains(parent.Why, want) {
		t.Errorf("%q, want %q", parent.Why, want)
	}
}

// A family of which the members between hold nothing in memory comes back as one, whoever of it is loaded first: the child
// of a child is told of, by the child, to the parent.
func TestTakeoverOfGrandchildren(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, Child: "middle"}, scheduler.Config{})
	r.store.AddPlan(core.Plan{Name: "middle", Version: 1, Steps: []core.Step{{Name: "kids", Kind: core.TaskStep, Child: "leg", Undoable: true, AttemptsMax: 1}}})
	beside := family(core.Step{Kind: core.TaskStep, Child: "middle"})
	beside.Name, beside.Steps[2].After = "beside", []int{0}
	r.store.AddPlan(beside)
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "beside", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.answer(r.one(), 0)
	for range 3 {
		r.cycle()
	}
	r.state("t1", core.StateProcessing)
	r.state("t1~kids", core.StatePending)
	r.state("t1~kids~kids", core.StateProcessing)
	r.bus.take()
	r.start("n2")
	r.adopt(0)
	if got := r.shard.Load(0); got != 3 {
		t.Errorf("%d tasks are in flight, want 3", got)
	}
	r.serve(ok)
	for _, id := range []string{"t1~kids~kids", "t1~kids", "t1"} {
		r.state(id, core.StateProcessed)
	}
	if got := r.shard.Load(0); got != 0 {
		t.Errorf("%d tasks are left in flight", got)
	}
}

// Children of many tasks take turns with each other, and new tasks begin beside them.
func TestChildrenTakeTurns(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 500, Parallel: 500}, scheduler.Config{BatchMax: 40})
	r.tasks(0, core.Submission{Type: "family", ID: "t1", Input: list(400)}, core.Submission{Type: "family", ID: "t2", Input: list(400)})
	r.cycle()
	for _, c := range r.bus.take() {
		r.answer(c, 0)
	}
	r.tasks(0, order("o1"))
	r.cycle()
	if r.store.Task(0, "o1") == nil {
		t.Error("a new task waits for the children of others")
	}
	counts := []core.ChildCounts{r.counts("t1", true), r.counts("t2", true)}
	if counts[0].Born == 0 || counts[1].Born == 0 {
		t.Errorf("%+v", counts)
	}
	r.serve(ok)
	r.state("t1", core.StateProcessed)
	r.state("t2", core.StateProcessed)
}

// What waits for an instant or a signal is not in memory, and goes on when the supervisor asks, or the signal comes.
func TestParkedWaitAndSignal(t *testing.T) {
	r := newRig(t, scheduler.Config{CheckSignal: func(step *core.Step, payload []byte) error {
		if step.Schema == `{"type":"object"}` && payload[0] != '{' {
			return errors.New("got a number, want object")
		}
		return nil
	}})
	r.store.AddPlan(core.Plan{Name: "slow", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
		{Name: "nap", Kind: core.WaitStep, For: 10 * time.Second},
		{Name: "yes", Kind: core.SignalStep, After: []int{0}, CompleteBy: time.Minute, Schema: `{"type":"object"}`},
		{Name: "b", Agent: "agent.b", After: []int{1}},
	}})
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "slow", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.state("t1", core.StatePending)
	if n := r.shard.Load(0); n != 0 {
		t.Errorf("%d tasks are in flight", n)
	}
	r.now = r.now.Add(11 * time.Second)
	due, err := r.store.Overdue(t.Context(), 0, r.now, core.Due{}, 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("%v, %v", due, err)
	}
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{due[0].Number}, Actor: "supervisor"})
	r.cycle()
	parked := r.state("t1", core.StatePending)
	if parked.Steps[0].Status != core.StepDone || parked.Steps[1].Status != core.StepRunning {
		t.Fatalf("%s", r.store.History(0, "t1"))
	}
	r.control(core.Control{Kind: core.EventSignal, ID: "t1", Step: "yes", Result: []byte(`1`), Actor: "person"})
	r.cycle()
	r.logged("payload does not fit the schema of step yes: got a number, want object")
	r.control(core.Control{Kind: core.EventSignal, ID: "t1", Step: "yes", Result: []byte(`{"by":"me"}`), Actor: "person"})
	r.cycle()
	c := r.one()
	if c.Step != "b" || len(c.Results) != 2 || string(c.Results[1].Result) != `{"by":"me"}` {
		t.Errorf("%+v", c)
	}
	r.control(core.Control{Kind: core.EventSignal, ID: "t1", Step: "yes", Reason: "no", Actor: "person"})
	r.cycle()
	r.logged("has had its signal")
	r.answer(c, 0)
	r.cycle()
	r.state("t1", core.StateProcessed)
}

// What is accepted by hand for a signal fits its schema, as the signal itself has to.
//
// covers: W10
func TestAcceptedAnswerFitsItsSchema(t *testing.T) {
	r := newRig(t, scheduler.Config{CheckSignal: func(_ *core.Step, payload []byte) error {
		if payload[0] != '{' {
			return errors.New("got a number, want object")
		}
		return nil
	}})
	r.store.AddPlan(core.Plan{Name: "slow", Version: 1, CompleteBy: time.Hour, Steps: []core.Step{
		{Name: "yes", Kind: core.SignalStep, CompleteBy: time.Minute, OnExhausted: core.PolicyError, Schema: `{"type":"object"}`},
		{Name: "b", Agent: "agent.b", After: []int{0}},
	}})
	r.mail.PlansChanged = true
	r.tasks(0, core.Submission{Type: "slow", ID: "t1", Input: []byte(`{}`)})
	r.cycle()
	r.control(core.Control{Kind: core.EventSignal, ID: "t1", Step: "yes", Reason: "no", Actor: "person"})
	r.cycle()
	r.state("t1", core.StateError)
	r.control(core.Control{Kind: core.EventAccept, ID: "t1", Result: []byte(`1`), Actor: "person"})
	r.cycle()
	r.logged("payload does not fit the schema of step yes: got a number, want object")
	r.state("t1", core.StateError)
	r.control(core.Control{Kind: core.EventAccept, ID: "t1", Result: []byte(`{"by":"me"}`), Actor: "person"})
	r.cycle()
	if c := r.one(); c.Step != "b" || string(c.Results[0].Result) != `{"by":"me"}` {
		t.Errorf("%+v", c)
	}
}

// However little may be in flight, one child of a step at a time always is: its parent would never come to its end.
func TestOneChildAlwaysHasRoom(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 3, Parallel: 3}, scheduler.Config{InFlight: 1})
	r.family("t1", list(3))
	r.serve(ok)
	r.state("t1", core.StateProcessed)
}

// A step whose children found no room looks for it again by itself: what makes room may be of another shard, and then nothing
// else comes.
func TestChildrenLookForRoomAgain(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 3, Parallel: 3}, scheduler.Config{InFlight: 2})
	r.family("t1", list(3))
	r.cycle()
	first := r.one()
	for range 8 {
		next := r.shard.NextWake()
		if next == 0 {
			t.Fatal("nothing looks for room any more")
		}
		r.now = max(r.now, next)
		r.cycle()
	}
	r.answer(first, 0)
	r.cycle()
	r.serve(ok)
	r.state("t1", core.StateProcessed)
}

// Tasks that wait for their children and want more of them take no room while the children's agent is paused: when the pause is
// lifted the children go on. So it is after a takeover, which finds them in the store alone.
func TestParkedChildrenOfAFullPartition(t *testing.T) {
	narrow := func() *scheduler.Admission {
		a := scheduler.NewAdmission(1, -1)
		a.Own(1)
		return a
	}
	for full, room := range map[string]func() scheduler.Config{
		"partition": func() scheduler.Config { return scheduler.Config{InFlight: 2} },
		"memory":    func() scheduler.Config { return scheduler.Config{Memory: scheduler.NewMemory(2 << 10)} },
		"one task":  func() scheduler.Config { return scheduler.Config{Memory: scheduler.NewMemory(1)} },
		"window":    func() scheduler.Config { return scheduler.Config{Admission: narrow()} },
	} {
		for _, takeover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, taken over %t", full, takeover), func(t *testing.T) {
				r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 3, Parallel: 2}, room())
				r.pause(core.Pause{Agent: "agent.go"})
				r.family("t1", list(3))
				r.family("t2", list(3))
				for range 3 {
					r.cycle()
				}
				if takeover {
					fresh := room()
					r.cfg.Memory, r.cfg.Admission = fresh.Memory, fresh.Admission
					r.start("n2")
					r.pause(core.Pause{Agent: "agent.go"})
					r.adopt(0)
					r.cycle()
				}
				if n := r.shard.Load(0); n != 0 {
					t.Fatalf("%d tasks are in flight, want no parent", n)
				}
				r.pause()
				for range 20 {
					r.cycle()
					r.serve(ok)
					r.now = r.now.Add(time.Second)
				}
				r.state("t1", core.StateProcessed)
				r.state("t2", core.StateProcessed)
			})
		}
	}
}

// A child that ended at its birth, in a partition that an error stops in the same round, is told to none: its parent is
// another owner's. The shard goes on with its other partitions.
func TestEndedChildOfALostPartition(t *testing.T) {
	rounds := 0
	r := newFamily(t, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: 2, Parallel: 2}, scheduler.Config{Hears: func() int64 {
		if rounds++; rounds > 1000 {
			panic("rounds without end")
		}
		return 1
	}})
	hasty := leg("hasty")
	hasty.Steps[0].Least = 100 * time.Hour // it has no time for it, and is undone at once
	r.store.AddPlan(hasty)
	r.store.AddPlan(core.Plan{Name: "parent", Version: 1, Steps: []core.Step{{Name: "kid", Kind: core.TaskStep, Child: "hasty", CompleteBy: time.Hour}}})
	store := &hideReads{MemStore: r.store, read: "Youngest"}
	r.reads = store
	r.start("n1")
	r.adopt(0)
	r.adopt(1)
	r.family("t1", list(2))
	r.bus.take()
	store.fails = errCut
	r.control(core.Control{Kind: core.EventCancel, ID: "t1", Type: "family", Actor: "c"})
	r.tasks(0, core.Submission{Type: "parent", ID: "t2", Input: []byte(`{}`)})
	if lost, err := r.try(false); !slices.Equal(lost, []int{0}) || !errors.Is(err, errCut) {
		t.Fatalf("lost %v, %v", lost, err)
	}
	r.tasks(1, order("t3"))
	r.cycle()
	if c := r.one(); c.Task != "t3" {
		t.Errorf("%+v", c)
	}
}

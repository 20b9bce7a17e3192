package dulytest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

// The parts of the plans below.
var (
	left    = duly.NewStep[Cart, Bill]("left", "a.left", duly.After())
	right   = duly.NewStep[Cart, Bill]("right", "a.right", duly.After())
	extra   = duly.NewStep[Cart, Bill]("extra", "a.extra", duly.After(), duly.Optional(), duly.Attempts(1))
	last    = duly.NewStep[Cart, Bill]("last", "a.last", duly.After(left, right, extra))
	diamond = duly.NewPlan("diamond", 1, left, right, extra, last)

	nod     = duly.NewSignal[Cart, Score]("nod", duly.CompleteBy(time.Hour))
	asking  = duly.NewPlan("asking", 1, left, nod, duly.NewCheck[Cart, Bill]("after", "a.after")).With(duly.TaskCompleteBy(24 * time.Hour))
	dreary  = duly.NewWait[Cart]("dreary", duly.For(48*time.Hour))
	waiting = duly.NewPlan("waiting", 1, left, dreary).With(duly.TaskCompleteBy(72 * time.Hour))

	inner  = duly.ResultOf(duly.NewPlan("inner", 1, left, right), right)
	part   = duly.NewChild("part", inner)
	whole  = duly.NewPlan("whole", 1, part, duly.NewStep[Cart, Bill]("end", "a.end"))
	end    = duly.NewCheck[Cart, Bill]("end", "a.end") // by its name alone
	parted = duly.NewPlan("parted", 1, duly.NewChild("part", asking))
)

// graph is an engine in which every step of the plans above is answered.
func graph(t *testing.T) *dulytest.Engine {
	t.Helper()
	engine := dulytest.NewEngine(t)
	for _, step := range []duly.Named{left, right, extra, last, end, duly.NewCheck[Cart, Bill]("after", "a.after")} {
		engine.On(step).Answer(Bill{Number: step.Name()})
	}
	return engine
}

func TestBranchesRunSideBySide(t *testing.T) {
	engine := graph(t)
	for _, step := range []duly.Named{left, right, extra, last} {
		engine.On(step).Takes(time.Second).Answer(Bill{})
	}
	task := dulytest.Submit(engine, diamond, "d-1", Cart{})
	engine.Run()
	task.WantProcessed()
	if took := engine.Now().Sub(engine.Began()); took != 2*time.Second {
		t.Errorf("three steps side by side and one after them took %v", took)
	}
}

// One branch fails while two are out: they are awaited, and undone.
func TestBranchFails(t *testing.T) {
	engine := graph(t)
	engine.On(left).Fail(duly.Refuse(errors.New("no")))
	engine.On(right).Takes(3 * time.Second).Answer(Bill{})
	engine.On(extra).Takes(5 * time.Second).Answer(Bill{})
	task := dulytest.Submit(engine, diamond, "d-1", Cart{})
	engine.Advance(time.Second)
	task.WantState(duly.StateUndoing)
	engine.Run()
	task.WantState(duly.StateUndone)
	undone := task.Undone()
	slices.Sort(undone)
	if !slices.Equal(undone, []string{"extra", "right"}) || task.Step(last) != "skipped" {
		t.Errorf("undone %v; last is %s", undone, task.Step(last))
	}
}

func TestOptionalStep(t *testing.T) {
	engine := graph(t)
	engine.On(extra).Lost().Answer(Bill{})
	engine.On(extra).Undo().Answer(nil)
	engine.On(extra).Silent()
	task := dulytest.Submit(engine, diamond, "d-1", Cart{})
	engine.Run()
	task.WantProcessed()
	if got := strings.Join(task.Trail(), ", "); task.Step(extra) != "skipped" || !strings.HasSuffix(got, "extra overdue, extra undone, last done") {
		t.Errorf("extra is %s: %s", task.Step(extra), got)
	}
}

func TestWait(t *testing.T) {
	engine := graph(t)
	task := dulytest.Submit(engine, waiting, "w-1", Cart{})
	engine.Advance(47 * time.Hour)
	task.WantState(duly.StatePending)
	engine.Restart()
	engine.Run()
	task.WantProcessed()
	if took := engine.Now().Sub(engine.Began()); took < 48*time.Hour || took > 48*time.Hour+time.Second {
		t.Errorf("took %v", took)
	}
}

func TestSignals(t *testing.T) {
	engine := graph(t)
	send := func(id string, answer duly.Answer[Cart], want string) {
		t.Helper()
		switch err := dulytest.Signal(engine, asking, id, answer); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", id, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", id, err, want)
		}
	}
	task := func(id string) *dulytest.Task { return dulytest.Submit(engine, asking, id, Cart{}) }
	yes, no := nod.Answer(Score{Good: true}), nod.Refuse("not this year")

	early := task("early")
	send("early", yes, "")
	if got := early.Step(nod); got != "signalled" {
		t.Errorf("its step is %s", got)
	}
	send("early", yes, "step nod has had its signal, in journal row")
	refusedEarly := task("refused-early")
	send("refused-early", no, "")
	at, refused, never := task("at"), task("refused"), task("never")
	engine.Run()
	early.WantProcessed()
	refusedEarly.WantUndone(left)
	at.WantState(duly.StatePending)
	send("at", yes, "")
	send("at", yes, "step nod has had its signal")
	send("refused", no, "")
	engine.Run()
	at.WantProcessed()
	refused.WantUndone(left)
	if refused.Reason() != "not this year" {
		t.Errorf("reason: %s", refused.Reason())
	}
	never.WantState(duly.StatePending)
	engine.Advance(time.Hour)
	engine.Run()
	never.WantUndone(left)
	send("never", yes, "refused: not allowed")
	send("nowhere", yes, "not found")
	var score Score
	if err := at.StepResult(nod, &score); err != nil || !score.Good {
		t.Errorf("%+v: %v", score, err)
	}
}

func TestChildren(t *testing.T) {
	engine := graph(t)
	engine.Apply(inner)
	task := dulytest.Submit(engine, whole, "w-1", Cart{})
	engine.Run()
	task.WantProcessed()
	child := engine.Task(duly.ChildID("w-1", part))
	child.WantProcessed()
	var bill Bill
	if err := task.StepResult(part, &bill); err != nil || bill.Number != "right" {
		t.Errorf("%+v: %v", bill, err)
	}
	if err := engine.Cancel(child.ID(), "no more"); !errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), "w-1") {
		t.Errorf("a cancel of a child: %v", err)
	}
	if err := engine.Undo("w-1", "sent back"); err != nil {
		t.Error(err)
	}
	engine.Run()
	task.WantUndone(end, part)
	child.WantState(duly.StateUndone)
	if err := engine.Resubmit("w-1", "once more"); err != nil {
		t.Error(err)
	}
	engine.Run()
	task.WantProcessed()
	if again := engine.Task("w-1~part~r1"); again == nil || again.State() != duly.StateProcessed || len(task.Children()) != 2 {
		t.Errorf("the child of the second round: %v, of %d", again, len(task.Children()))
	}
}

// A child that is undone fails the step; the parent's other steps are undone.
func TestChildFails(t *testing.T) {
	engine := graph(t)
	engine.Apply(inner)
	engine.On(right).Fail(duly.Refuse(errors.New("sold out")))
	task := dulytest.Submit(engine, whole, "w-1", Cart{})
	engine.Run()
	task.WantState(duly.StateUndone)
	engine.Task("w-1~part").WantUndone(left)
	if !strings.Contains(task.Reason(), "sold out") {
		t.Errorf("reason: %s", task.Reason())
	}
}

// A child whose undo gives up leaves the parent in error.
func TestChildUndoGivesUp(t *testing.T) {
	engine := graph(t)
	engine.Apply(inner)
	engine.On(end).Fail(duly.Refuse(errors.New("no")))
	engine.On(left).Undo().Fail(duly.Refuse(errors.New("it is used up")))
	task := dulytest.Submit(engine, whole, "w-1", Cart{})
	engine.Run()
	task.WantError(part)
	engine.Task("w-1~part").WantError(left)
	if !strings.Contains(task.Reason(), "it is used up") {
		t.Errorf("reason: %s", task.Reason())
	}
}

// A child that waits for a person stops the engine, and a restart forgets nothing.
func TestChildWaitsForSignal(t *testing.T) {
	engine := graph(t)
	engine.Apply(asking)
	task := dulytest.Submit(engine, parted.With(duly.TaskCompleteBy(24*time.Hour)), "p-1", Cart{})
	engine.Run()
	task.WantState(duly.StatePending)
	engine.Restart()
	engine.Run()
	if err := dulytest.Signal(engine, asking, "p-1~part", nod.Answer(Score{})); err != nil {
		t.Fatal(err)
	}
	engine.Run()
	task.WantProcessed()
}

// A child's plan has to be stored.
func TestChildWithoutPlan(t *testing.T) {
	got := reported(func(t dulytest.TB) {
		engine := dulytest.NewEngine(t)
		dulytest.Submit(engine, whole, "w-1", Cart{})
		engine.Run()
	})
	if !strings.Contains(got, "step part: plan inner of its children is not stored: see Engine.Apply") {
		t.Errorf("reported %s", got)
	}
}

// The parts of the plans with an each.
type (
	batch struct {
		Rows []row `json:"rows"`
	}
	row struct {
		N int `json:"n"`
	}
)

var (
	put  = duly.NewStep[row, row]("put", "a.put")
	line = duly.ResultOf(duly.NewPlan("line", 1, put), put)
	stop = duly.NewCheck[batch, row]("stop", "a.stop")
)

// lines is a plan with a child for each row, of which some may fail, and a batch of so many rows for it.
func lines(n int, options ...duly.EachOption) (*duly.Plan[batch], *duly.Each[batch], batch) {
	each := duly.NewEach[batch]("each", line, duly.Elements("input.rows", 5000), options...)
	b := batch{Rows: make([]row, n)}
	for i := range b.Rows {
		b.Rows[i].N = i
	}
	return duly.NewPlan("lines", 1, each, stop).With(duly.TaskCompleteBy(time.Hour)), each, b
}

// mostOpen runs the engine in small steps and gives the most children of a task that were open at a time.
func mostOpen(engine *dulytest.Engine, task *dulytest.Task) (most int) {
	for range 10_000 {
		open := 0
		for _, child := range task.Children() {
			if !child.State().Ended() {
				open++
			}
		}
		most = max(most, open)
		if task.State().Ended() {
			break
		}
		engine.Advance(10 * time.Millisecond)
	}
	return most
}

func TestEach(t *testing.T) {
	engine := dulytest.NewEngine(t)
	engine.Apply(line)
	engine.On(put).Takes(20 * time.Millisecond).Answer(row{})
	engine.On(stop).Answer(row{})
	plan, each, input := lines(200, duly.Parallel(7), duly.FailuresMax(3), duly.ElementInput("{'n': int(element.n) + index}"))
	for _, i := range []int{0, 99, 199} {
		engine.On(put).Task(duly.ElementID("b-1", each, i)).Fail(duly.Refuse(errors.New("no")))
	}
	task := dulytest.Submit(engine, plan, "b-1", input)
	if most := mostOpen(engine, task); most != 7 {
		t.Errorf("%d children were open at a time, want 7", most)
	}
	task.WantProcessed()
	var counts duly.Counts
	if err := task.StepResult(each, &counts); err != nil || counts != (duly.Counts{Done: 197, Failed: 3}) {
		t.Errorf("%+v: %v", counts, err)
	}
	if len(task.Children()) != 200 || len(task.Trail()) != 2 {
		t.Errorf("%d children; the parent's trail: %v", len(task.Children()), task.Trail())
	}
}

// One failure too many undoes all children, so many at a time.
func TestEachFails(t *testing.T) {
	engine := dulytest.NewEngine(t)
	engine.Apply(line)
	engine.On(put).Undo().Takes(20 * time.Millisecond).Answer(row{})
	engine.On(put).Answer(row{})
	plan, each, input := lines(100, duly.Parallel(10))
	engine.On(put).Undo().Takes(20 * time.Millisecond).Answer(row{})
	engine.On(put).Takes(20 * time.Millisecond).Answer(row{})
	engine.On(put).Task(duly.ElementID("b-1", each, 60)).Fail(duly.Refuse(errors.New("row 60 is bad")))
	task := dulytest.Submit(engine, plan, "b-1", input)
	if most := mostOpen(engine, task); most > 10 {
		t.Errorf("%d children were open at a time, want 10", most)
	}
	task.WantState(duly.StateUndone)
	if !strings.Contains(task.Reason(), "row 60 is bad") {
		t.Errorf("reason: %s", task.Reason())
	}
	for _, child := range task.Children() {
		child.WantState(duly.StateUndone)
	}
	if n := len(task.Children()); n < 61 || n > 70 {
		t.Errorf("%d children were born", n)
	}
}

// A restart in the middle of an each bears no child twice, and counts those that have ended.
func TestEachIsResumed(t *testing.T) {
	engine := dulytest.NewEngine(t)
	engine.Apply(line)
	engine.On(put).Takes(time.Second).Answer(row{})
	engine.On(stop).Answer(row{})
	plan, each, input := lines(50, duly.Parallel(5))
	task := dulytest.Submit(engine, plan, "b-1", input)
	engine.Advance(4500 * time.Millisecond)
	engine.Restart()
	engine.Run()
	task.WantProcessed()
	var counts duly.Counts
	if err := task.StepResult(each, &counts); err != nil || counts.Done != 50 || len(task.Children()) != 50 {
		t.Errorf("%+v of %d children: %v", counts, len(task.Children()), err)
	}
}

// A list that is too long, one that is empty, and one that is null, as a nil slice is written.
func TestElements(t *testing.T) {
	engine := dulytest.NewEngine(t)
	engine.Apply(line)
	engine.On(stop).Answer(row{})
	plan, _, long := lines(5001)
	task := dulytest.Submit(engine, plan, "b-long", long)
	empty := dulytest.Submit(engine, plan, "b-empty", batch{})
	none := dulytest.Submit(engine, plan, "b-none", batch{Rows: []row{}})
	engine.Run()
	task.WantState(duly.StateUndone)
	none.WantProcessed()
	empty.WantProcessed()
	if got, want := task.Reason(), "elements_max is 5000"; !strings.Contains(got, want) {
		t.Errorf("reason %s, want %s", got, want)
	}
}

// An expression that cannot be is refused where the plan is applied.
func TestExpressionThatCannotBe(t *testing.T) {
	got := reported(func(t dulytest.TB) {
		dulytest.NewEngine(t).Apply(duly.NewPlan("p", 1, duly.NewCheck[Cart, Bill]("a", "a", duly.When("input.x +"))))
	})
	if !strings.Contains(got, "step a: when, line 1, column 10") {
		t.Errorf("reported %s", got)
	}
}

// What a server refuses by a schema is refused here: an input, that of a child, the answer of a person.
func TestSchemasCount(t *testing.T) {
	some := duly.InputSchemaJSON(`{"type":"object","properties":{"Cents":{"minimum":1}}}`)
	said := reported(func(t dulytest.TB) {
		dulytest.Submit(dulytest.NewEngine(t), duly.NewPlan("left", 1, left).With(some), "s-1", Cart{})
	})
	if !strings.Contains(said, `input does not fit the input schema of plan left version 1: at "/Cents"`) {
		t.Errorf("an input: %s", said)
	}
	said = reported(func(t dulytest.TB) {
		dulytest.NewEngine(t).Apply(duly.NewPlan("left", 1, left).With(duly.InputSchemaJSON(`{"minimun":1}`)))
	})
	if !strings.Contains(said, "did you mean minimum?") {
		t.Errorf("a schema that is none: %s", said)
	}
	engine := graph(t)
	engine.Apply(inner.With(some))
	task := dulytest.Submit(engine, whole, "s-2", Cart{})
	engine.Run()
	task.WantState(duly.StateUndone)
	if !strings.Contains(task.Reason(), `child s-2~part: input does not fit the input schema of plan inner version 1: at "/Cents"`) {
		t.Errorf("of a child: %s", task.Reason())
	}
	sign := duly.NewSignal[Cart, Score]("sign", duly.PayloadSchemaJSON(`{"properties":{"Good":{"const":true}}}`))
	signed := duly.NewPlan("signed", 1, sign)
	task = dulytest.Submit(engine, signed, "s-3", Cart{})
	engine.Run()
	if err := dulytest.Signal(engine, signed, "s-3", sign.Answer(Score{})); !errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), `payload does not fit the schema of step sign: at "/Good"`) {
		t.Errorf("an answer: %v", err)
	}
	if err := dulytest.Signal(engine, signed, "s-3", sign.Answer(Score{Good: true})); err != nil {
		t.Error(err)
	}
	engine.Run()
	task.WantProcessed()
}

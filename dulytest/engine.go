package dulytest

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/jsonschema"
)

// TB is what an [Engine] needs of a *testing.T.
type TB interface {
	T
	Fatalf(format string, args ...any)
}

// Bounds of an engine.
const (
	eventsMax  = 5_000_000        // events of one engine: more are a loop
	answerTime = time.Microsecond // from a command to its answer, unless a rule says more
	engineName = "dulytest"
	// fairChance is the draw of every backoff: half of the most it could be.
	fairChance = 0.5
)

// epoch is when every engine begins: 1 January 2030, UTC.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Engine runs tasks in memory: it decides as a server does, by the same code, and calls the handlers of the agents it
// is given. Its clock jumps from one event to the next, so that a backoff, a time-out or a wait of a month takes no
// time. Handlers are called one after the other, on the goroutine of the test.
//
// A handler that waits for its context to end waits in real time: use [Rule.Silent] instead, or run the test in
// testing/synctest.
type Engine struct {
	t       TB
	now     core.Instant
	offset  core.Instant // how long the handler that runs has slept
	plans   map[string][]*stored
	runtime map[string]*agents.Runtime // by agent
	codec   duly.Codec
	schemas jsonschema.Cache
	tasks   map[string]*Task
	rules   []*Rule
	queue   queue
	count   int64 // events queued so far
	out     core.Outcome
}

// NewEngine makes an engine whose steps are performed by agents: made with duly.NewAgent(nil, …), and with what they
// serve. They need not run.
func NewEngine(t TB, served ...*duly.Agent) *Engine {
	t.Helper()
	e := &Engine{t: t, now: core.InstantOf(epoch), plans: map[string][]*stored{}, runtime: map[string]*agents.Runtime{}, tasks: map[string]*Task{}}
	for _, agent := range served {
		runtime := agent.Runtime().WithTime(clock{e})
		for _, name := range runtime.Agents() {
			if e.runtime[name] != nil {
				t.Fatalf("agent %s is served twice", name)
			}
			e.runtime[name] = runtime
		}
		if codec := agent.Codec(); codec != nil {
			e.codec = codec
		}
	}
	return e
}

// Plan is any plan.
type Plan interface{ Spec() (core.Plan, error) }

// Apply stores plans, as [duly.Plan.Apply] does: those of children before their parents are submitted. [Submit] stores
// its own.
func (e *Engine) Apply(plans ...Plan) {
	e.t.Helper()
	for _, plan := range plans {
		if _, err := e.apply(plan); err != nil {
			e.t.Fatalf("apply: %v", err)
		}
	}
}

func (e *Engine) apply(plan Plan) (*stored, error) {
	spec, err := plan.Spec()
	if err != nil {
		return nil, err
	}
	for _, s := range e.plans[spec.Name] {
		switch {
		case s.plan.Version != spec.Version:
		case reflect.DeepEqual(s.plan, spec):
			return s, nil
		default:
			return nil, fmt.Errorf("plan %s version %d: %w", spec.Name, spec.Version, core.ErrPlanConflict)
		}
	}
	if err := jsonschema.CheckPlan(&spec); err != nil {
		return nil, err
	}
	s := &stored{plan: spec}
	if s.program, err = expr.Compile(&s.plan); err != nil {
		return nil, err
	}
	e.plans[spec.Name] = append(e.plans[spec.Name], s)
	slices.SortFunc(e.plans[spec.Name], func(a, b *stored) int { return cmp.Compare(a.plan.Version, b.plan.Version) })
	return s, nil
}

// stored is a plan with its compiled expressions.
type stored struct {
	plan    core.Plan
	program *expr.Program
}

// task is a task of the plan.
func (s *stored) task(e *Engine) *Task { return &Task{e: e, plan: &s.plan, program: s.program} }

// newest is the newest version of a plan, nil if there is none.
func (e *Engine) newest(name string) *stored {
	if all := e.plans[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// Submit hands one task in, and stores its plan. It begins with the next [Engine.Run], or whatever else lets time
// pass. The same id again gives the task that there is.
func Submit[In, Out any](e *Engine, plan duly.PlanOf[In, Out], id string, input In) *Task {
	e.t.Helper()
	plans, err := e.apply(plan)
	if err != nil {
		e.t.Fatalf("submit task %s: %v", id, err)
		return nil
	}
	spec := &plans.plan
	data, err := json.Marshal(input)
	if err == nil {
		var sent duly.Prepared
		sent, err = duly.PrepareRaw(context.Background(), e.codec, spec.Name, id, data)
		data = sent.Input
	}
	if err == nil {
		err = e.fits(spec, data)
	}
	if err != nil {
		e.t.Fatalf("submit task %s of type %s: %v", id, spec.Name, err)
		return nil
	}
	if t := e.tasks[id]; t != nil {
		if !slices.Equal(t.task.InputHash, core.HashInput(spec.Name, data)) {
			e.t.Fatalf("submit task %s of type %s: the id is a task already, with another input", id, spec.Name)
		}
		return t
	}
	t := plans.task(e)
	t.task = core.Task{ID: id, Type: spec.Name, Number: int64(len(e.tasks) + 1), Input: data, InputHash: core.HashInput(spec.Name, data), CreatedAt: e.now}
	e.bear(t)
	return t
}

// fits says why a plan does not take an input, as a server does.
func (e *Engine) fits(plan *core.Plan, input []byte) error {
	if len(input) > plan.InputMax {
		return fmt.Errorf("input has %d bytes, the limit is %d", len(input), plan.InputMax)
	}
	return plan.FitsInput(input, e.checkInput)
}

func (e *Engine) checkInput(plan *core.Plan, input []byte) error {
	return e.schemas.Check(plan.InputSchema, input)
}

func (e *Engine) checkSignal(step *core.Step, payload []byte) error {
	return e.schemas.Check(step.Schema, payload)
}

// bear begins the life of a task.
func (e *Engine) bear(t *Task) {
	e.tasks[t.task.ID] = t
	ev := e.event(t, core.Event{})
	core.Birth(t.plan, &t.task, &ev, &e.out)
	e.commit(t)
}

// event fills in what every event has.
func (e *Engine) event(t *Task, ev core.Event) core.Event {
	ev.At, ev.Node, ev.Rand, ev.Ask = e.now, engineName, fairChance, t.program.Bind(&t.task)
	ev.Actor = cmp.Or(ev.Actor, engineName)
	return ev
}

// decide applies one event to a task. Error: the core takes it for stale or not allowed; nothing changed.
func (e *Engine) decide(t *Task, ev core.Event) error {
	ev = e.event(t, ev)
	if err := core.Apply(t.plan, &t.task, &ev, &e.out); err != nil {
		return err
	}
	e.commit(t)
	return nil
}

// commit stores what an event led to, as a store would, and carries out its effects.
func (e *Engine) commit(t *Task) {
	t.journal = append(t.journal, e.out.Records...)
	if e.out.Row || t.row.ID == "" {
		input := t.row.Input // the row keeps that of the birth
		t.row = t.task
		t.row.Steps, t.row.Earlier = nil, nil
		if input != nil {
			t.row.Input = input
		}
	}
	for _, effect := range slices.Clone(e.out.Effects) {
		e.carryOut(t, effect)
	}
	e.watch(t)
}

// carryOut does what an effect says.
func (e *Engine) carryOut(t *Task, effect core.Effect) {
	switch effect.Kind {
	case core.EffectDo, core.EffectUndo:
		cmd := e.command(t, effect)
		e.at(e.now, func() { e.call(t, cmd) })
	case core.EffectProbe:
		e.probe(t, effect)
	case core.EffectWake:
		e.wake(t, max(e.now, effect.At))
	case core.EffectAlert:
		t.alerts++
	case core.EffectChildren:
		e.beginChildren(t, effect)
	case core.EffectUndoChildren:
		e.undoChildren(t, effect)
	case core.EffectEnded:
		e.ended(t)
		if t.parent != nil {
			e.childEnded(t)
		}
	}
}

// ended replays the task: what a server would make of its journal has to be what it is.
func (e *Engine) ended(t *Task) {
	e.t.Helper()
	replayed, err := core.Replay(t.plan, &core.Saved{Row: t.row, Journal: t.journal})
	if err != nil {
		e.t.Fatalf("%v", err)
	}
	if replayed.State != t.task.State || len(replayed.Steps) != len(t.task.Steps) {
		e.t.Fatalf("task %s is %s, and replayed %s", t.task.ID, t.task.State, replayed.State)
	}
	for i := range replayed.Steps {
		live, again := t.task.Steps[i].Journalled(), replayed.Steps[i].Journalled()
		if !reflect.DeepEqual(live, again) {
			e.t.Fatalf("task %s: step %s is %+v, and replayed %+v", t.task.ID, t.plan.Steps[i].Name, live, again)
		}
	}
}

// watch asks about the task when something of it is due, as the supervisor does.
func (e *Engine) watch(t *Task) {
	due := t.task.NextDue(t.plan)
	if due == t.watched {
		return
	}
	if t.watched = due; due == 0 {
		return
	}
	e.push(&event{at: max(e.now, due), late: true, task: t, due: due, run: func() {
		t.watched = 0
		if t.task.NextDue(t.plan) == due {
			_ = e.decide(t, core.Event{Kind: core.EventOverdue}) // a wake at the same instant comes first
		}
		e.watch(t)
	}})
}

// wake wakes a task at an instant, unless it is woken before: what is due later is found then.
func (e *Engine) wake(t *Task, at core.Instant) {
	if t.wakes != 0 && t.wakes <= at {
		return
	}
	t.wakes = at
	e.at(at, func() {
		if t.wakes == at { // else one at an earlier instant has come in between
			t.wakes = 0
			_ = e.decide(t, core.Event{Kind: core.EventWake})
		}
	})
}

// command is what an agent is told.
func (e *Engine) command(t *Task, effect core.Effect) *core.Command {
	step := &t.plan.Steps[effect.Step]
	cmd := &core.Command{
		Undo: effect.Kind == core.EffectUndo, Agent: step.Agent, Number: t.task.Number, Seq: effect.Seq, Copy: effect.Copy, Task: t.task.ID, Type: t.task.Type,
		Step: step.Name, Attempt: effect.Attempt, Round: t.task.Round, CompleteBy: effect.At, Left: effect.At.Sub(e.now),
		Input: t.task.InputOf(effect.Step), Results: t.results(effect.Step), Trace: t.task.Trace,
	}
	if cmd.Undo {
		cmd.Result = t.task.Steps[effect.Step].Result
	}
	return cmd
}

// call has an agent perform a command, by the rules that there are.
func (e *Engine) call(t *Task, cmd *core.Command) {
	rule := e.ruleOf(cmd)
	if rule != nil {
		rule.used++
	}
	answer := func(after time.Duration, reply core.Reply) {
		e.at(e.now.Add(max(after, answerTime)), func() {
			ev := core.Event{Kind: core.EventReply, Seq: cmd.Seq, Copy: cmd.Copy, Code: reply.Code, Error: reply.Error, Result: reply.Result, Actor: cmd.Agent}
			_ = e.decide(t, ev) // one that is too late is stale
		})
	}
	switch {
	case rule != nil && rule.silent:
		return
	case rule != nil && rule.unserved:
		e.at(e.now.Add(answerTime), func() { _ = e.decide(t, core.Event{Kind: core.EventUnserved, Seq: cmd.Seq, Copy: cmd.Copy}) })
		return
	case rule != nil && rule.err != nil:
		answer(rule.delay, failure(rule.err))
		return
	case rule != nil && rule.stub != nil:
		reply, err := e.stubbed(rule, cmd)
		if err != nil {
			e.t.Fatalf("answer of step %s: %v", cmd.Step, err)
		}
		answer(rule.delay, reply)
		return
	}
	runtime := e.runtime[cmd.Agent]
	if runtime == nil {
		e.t.Fatalf("task %s: step %s: agent %s is not among those of NewEngine: give it, or say what it answers with On", cmd.Task, cmd.Step, cmd.Agent)
		return
	}
	e.offset = 0
	reply, answered := runtime.Handle(context.Background(), e.now, cmd)
	slept := time.Duration(e.offset) * time.Microsecond
	e.offset = 0
	if reply.Code == core.CodeUnable {
		e.t.Fatalf("task %s: step %s: agent %s cannot perform it: %s", cmd.Task, cmd.Step, cmd.Agent, reply.Error)
	}
	switch {
	case !answered || rule != nil && rule.lost:
	case rule != nil && rule.late:
		answer(cmd.CompleteBy.Sub(e.now)+rule.delay, reply)
	case rule != nil:
		answer(slept+rule.delay, reply)
	default:
		answer(slept, reply)
	}
}

// stubbed is the answer of a rule that has one of its own.
func (e *Engine) stubbed(rule *Rule, cmd *core.Command) (core.Reply, error) {
	if cmd.Undo {
		return core.Reply{}, nil
	}
	if e.codec == nil {
		return core.Reply{Result: rule.stub}, nil
	}
	result, err := e.codec.Encode(duly.Place{Type: cmd.Type, Task: cmd.Task, Step: cmd.Step}, rule.stub)
	return core.Reply{Result: result}, err
}

// failure is the reply that an error of a handler makes.
func failure(err error) core.Reply {
	reply := core.Reply{Code: core.CodeAgentError, Error: err.Error()}
	if coded, ok := errors.AsType[*agents.Error](err); ok {
		reply.Code = coded.Code
	}
	return reply
}

// Now is the engine's time.
func (e *Engine) Now() time.Time { return e.now.Time() }

// Began is when the engine began, always the same: 1 January 2030, UTC.
func (e *Engine) Began() time.Time { return epoch }

// Run lets time pass until every task has ended, or waits for a signal: it stops before a signal's time is over. Then
// [Signal] answers it, or [Engine.Advance] lets it expire.
func (e *Engine) Run() {
	e.t.Helper()
	e.pass(func(next *event) bool { return !next.expiresSignal() })
}

// Advance lets so much time pass, whatever happens.
func (e *Engine) Advance(d time.Duration) { e.t.Helper(); e.AdvanceTo(e.now.Add(d).Time()) }

// AdvanceTo lets time pass up to an instant, such as [Task.Deadline], whatever happens. One that has passed changes
// nothing.
func (e *Engine) AdvanceTo(at time.Time) {
	e.t.Helper()
	until := core.InstantOf(at)
	e.pass(func(next *event) bool { return next.at <= until })
	e.now = max(e.now, until)
}

// pass runs events as long as more says so of the next one.
func (e *Engine) pass(more func(*event) bool) {
	e.t.Helper()
	for len(e.queue) > 0 {
		if e.queue[0].over() {
			heap.Pop(&e.queue)
			continue
		}
		if !more(e.queue[0]) {
			return
		}
		next := heap.Pop(&e.queue).(*event)
		e.now = max(e.now, next.at)
		next.run()
	}
}

// Cancel asks that a task end, as [duly.Client.Cancel] does. Error: it is refused, as an
// [duly.ErrRefused].
func (e *Engine) Cancel(id, reason string) error {
	return e.ask(id, core.Event{Kind: core.EventCancel, Reason: reason})
}

// Found is what an operator has seen at a service whose key is too old to be used.
type Found core.ProbeOutcome

const (
	// Absent is of a resubmit: the step has no effect there.
	Absent = Found(core.ProbeAbsent)
	// Done is of an undo: what is to be undone is still there.
	Done = Found(core.ProbeDone)
)

// Undo asks that a task be undone, as an operator does: also one that is processed. found is for keys that are older than
// [duly.KeyLasts]. Error: it is refused.
func (e *Engine) Undo(id, reason string, found ...Found) error {
	return e.ask(id, core.Event{Kind: core.EventUndo, Reason: reason, Found: core.ProbeOutcome(cmp.Or(found...))})
}

// Resubmit asks that a task in error go on at the step that failed, and one that is undone begin again. found is as of
// [Engine.Undo]. Error: it is refused.
func (e *Engine) Resubmit(id, reason string, found ...Found) error {
	return e.ask(id, core.Event{Kind: core.EventResubmit, Reason: reason, Found: core.ProbeOutcome(cmp.Or(found...))})
}

func (e *Engine) ask(id string, ev core.Event) error {
	t := e.tasks[id]
	if t == nil {
		return fmt.Errorf("task %s: %w", id, duly.ErrNotFound)
	}
	ev.Actor = "test"
	err := t.task.Fits(t.plan, &ev, e.checkInput, e.checkSignal)
	if err == nil {
		err = e.decide(t, ev)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", duly.ErrRefused, err)
	}
	return nil
}

// Restart is a crash of the server and its start: every task that has not ended is rebuilt from its journal, and its
// commands are sent again.
func (e *Engine) Restart() {
	e.t.Helper()
	e.queue = nil
	for _, t := range e.all() {
		if t.task.State.Ended() {
			continue
		}
		replayed, err := core.Replay(t.plan, &core.Saved{Row: t.row, Journal: t.journal})
		if err != nil {
			e.t.Fatalf("%v", err)
		}
		t.task, t.watched, t.wakes = *replayed, 0, 0
		core.Resume(t.plan, &t.task, e.now, &e.out)
		for _, effect := range slices.Clone(e.out.Effects) {
			e.carryOut(t, effect)
		}
		e.watch(t)
	}
}

// all are the tasks, in the order in which they were made.
func (e *Engine) all() []*Task {
	all := make([]*Task, 0, len(e.tasks))
	for _, t := range e.tasks {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *Task) int { return cmp.Compare(a.task.Number, b.task.Number) })
	return all
}

// at runs a function at an instant.
func (e *Engine) at(at core.Instant, run func()) { e.push(&event{at: at, run: run}) }

func (e *Engine) push(ev *event) {
	if e.count++; e.count > eventsMax {
		e.t.Fatalf("%d events: this does not end by itself", e.count)
	}
	ev.n = e.count
	heap.Push(&e.queue, ev)
}

// event is what happens at an instant.
type event struct {
	at   core.Instant
	late bool // after the others of the same instant
	n    int64
	task *Task        // of a question whether something is overdue
	due  core.Instant // likewise: when it is
	run  func()
}

// over reports whether the event is a question that another has taken the place of.
func (ev *event) over() bool { return ev.task != nil && ev.task.watched != ev.due }

// expiresSignal reports whether the event is no more than that a signal's time is over.
func (ev *event) expiresSignal() bool {
	t := ev.task
	return t != nil && ev.at > t.e.now && t.waitsForSignal() && !t.dueBefore(ev.at)
}

// queue is a heap of events.
type queue []*event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.late != b.late {
		return b.late
	}
	return a.n < b.n
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	ev := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return ev
}

// clock is the time that handlers see: the engine's, and how long the present one has slept.
type clock struct{ e *Engine }

// Now implements agents.Time.
func (c clock) Now() core.Instant { return c.e.now + c.e.offset }

// WithTimeout implements agents.Time. It is by the real clock: no other knows that a handler waits.
func (clock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Sleep implements agents.Time.
func (c clock) Sleep(ctx context.Context, d time.Duration) error {
	c.e.offset += core.Instant(d / time.Microsecond)
	return ctx.Err()
}

// Float64 implements agents.Time.
func (clock) Float64() float64 { return fairChance }

package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// failer is what rig needs of a test; *testing.T, *testing.B and *rapid.T have it.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rig is one task with the store an owner would keep it in. Every event goes
// through apply, which stores what Apply says must be stored, nothing else, and
// then checks everything that must hold after any event.
type rig struct {
	t       failer
	plan    *Plan
	task    *Task
	now     Instant
	row     Task // as last written
	journal []Record
	out     Outcome
	ends    int64   // end numbers given
	own     Instant // the deadline the submission names; 0: the plan's
	byHand  bool    // a person resolved the task: its state is a claim, not a finding
	w       *witness
}

// birthTime is when every task of these tests is born: 2030 begins.
const birthTime = Instant(1_893_456_000_000_000)

const (
	node   = "node-1"
	person = "olga"
)

func newRig(t failer, p Plan) *rig {
	t.Helper()
	p = p.WithDefaults()
	if err := p.Validate(0); err != nil {
		t.Fatalf("the test's plan: %v", err)
	}
	return &rig{t: t, plan: &p, now: birthTime}
}

// stepsPlan is a chain of undoable steps a, b, c … with one second of backoff.
func stepsPlan(n int) Plan {
	p := Plan{Name: "order", Version: 3}
	for i := range n {
		name := string(rune('a' + i))
		step := Step{Name: name, Agent: "agent." + name, Undoable: true, Backoff: time.Second}
		if i > 0 {
			step.After = []int{i - 1}
		}
		p.Steps = append(p.Steps, step)
	}
	return p
}

func (r *rig) birth(full uint64) {
	r.t.Helper()
	r.task = &Task{ID: "t1", Type: r.plan.Name, Number: 1, CreatedAt: r.now, Deadline: r.own, Input: []byte(`{}`)}
	Birth(r.plan, r.task, &Event{At: r.now, Actor: node, Full: StepSet{low: full}}, &r.out)
	r.commit(&Task{})
	r.w.saw("birth", r.now, r.plan, r.task, &r.out, r.journal, nil)
}

// apply is one event: on success it is stored, on an error nothing may have changed.
func (r *rig) apply(ev Event) error {
	r.t.Helper()
	if ev.At == 0 {
		ev.At = r.now
	}
	if ev.Actor == "" {
		ev.Actor = node
	}
	before := r.task.clone()
	if err := Apply(r.plan, r.task, &ev, &r.out); err != nil {
		if diff := differ(before, r.task); diff != "" {
			r.t.Fatalf("refused (%v), but the task changed: %s", err, diff)
		}
		if len(r.out.Records) != 0 || len(r.out.Effects) != 0 || r.out.Row {
			r.t.Fatalf("refused (%v), but the outcome is not empty: %+v", err, r.out)
		}
		r.w.saw(eventName(ev.Kind), ev.At, r.plan, r.task, &r.out, r.journal, err)
		return err
	}
	if ev.Kind == EventResolve {
		r.byHand = true
	} else if len(r.out.Records) > 0 && r.task.Round > before.Round {
		r.byHand = false
	}
	r.commit(before)
	r.w.saw(eventName(ev.Kind), ev.At, r.plan, r.task, &r.out, r.journal, nil)
	return nil
}

// must is apply for an event that has to be taken.
func (r *rig) must(ev Event) {
	r.t.Helper()
	if err := r.apply(ev); err != nil {
		r.t.Fatalf("event %d: %v", ev.Kind, err)
	}
}

// answer is the answer to the command that is out.
func (r *rig) answer(code int) {
	r.t.Helper()
	i := r.task.Out()
	if i < 0 {
		r.t.Fatalf("no command is out: %s", r.task)
	}
	r.must(Event{Kind: EventReply, Seq: r.task.Steps[i].Out, Copy: r.task.Steps[i].Copy, Code: code, Error: text(code), Rand: 0.5, Result: fmt.Appendf(nil, "%d", i)})
}

func text(code int) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprintf("code %d", code)
}

// late lets the command out pass its complete-by unanswered.
func (r *rig) late() {
	r.t.Helper()
	r.now = max(r.now, r.task.NextDue(r.plan))
	r.must(Event{Kind: EventOverdue})
}

// nextWake is when the owner's timer goes off next.
func (r *rig) nextWake() Instant {
	if at := r.task.nextWake(r.plan, r.task.UpdatedAt); at != 0 {
		return at
	}
	return r.task.NextDue(r.plan)
}

// wait lets the wait that is on pass.
func (r *rig) wait() {
	r.t.Helper()
	r.now = max(r.now, r.nextWake())
	r.must(Event{Kind: EventWake})
}

// crash lets a new owner replay and resume the task.
func (r *rig) crash() {
	r.t.Helper()
	r.task = r.replayed()
	Resume(r.plan, r.task, r.now, &r.out)
	if len(r.out.Records) != 0 || r.out.Row {
		r.t.Fatalf("Resume journals: %+v", r.out)
	}
	r.w.saw("takeover", r.now, r.plan, r.task, &r.out, r.journal, nil)
}

func (r *rig) replayed() *Task {
	r.t.Helper()
	t, err := Replay(r.plan, &Saved{Row: r.row, Journal: r.journal})
	if err != nil {
		r.t.Fatalf("replay: %v", err)
	}
	return t
}

// commit stores the outcome as a store would and checks it.
func (r *rig) commit(before *Task) {
	r.t.Helper()
	for _, e := range r.out.Effects {
		if e.Kind == EffectEnded {
			r.ends++
			r.task.EndNumber = r.ends
		}
	}
	for i := range r.out.Records {
		if want := int64(len(r.journal) + 1); r.out.Records[i].Seq != want {
			r.t.Fatalf("journal row %d where %d comes next", r.out.Records[i].Seq, want)
		}
		r.journal = append(r.journal, r.out.Records[i])
	}
	if r.out.Row {
		input := r.row.Input // the row keeps that of the birth; an edit's is in its journal row
		r.row = *r.task.clone()
		r.row.Steps, r.row.Earlier = nil, nil
		if input != nil {
			r.row.Input = input
		}
	}
	r.check(before)
}

// check holds everything that must be true after any event.
func (r *rig) check(before *Task) {
	r.t.Helper()
	if what := rowColumns(before, r.task); what != "" && !r.out.Row {
		r.t.Fatalf("%s changed, but the row is not written: %s", what, r.task)
	}
	for i := range r.out.Records {
		r.checkGaveUp(&r.out.Records[i])
	}
	if due := r.task.NextDue(r.plan); r.row.Bound > due {
		r.t.Fatalf("the bound of the row is %d, above the true due %d: %s", r.row.Bound, due, r.task)
	}
	if what := stands(r.plan, r.task, r.row.Bound); what != "" {
		r.t.Fatalf("%s: %s", what, r.task)
	}
	if r.task.State.Ended() != (r.task.NextDue(r.plan) == 0) {
		r.t.Fatalf("an unended task has no due time, or an ended one has: %s", r.task)
	}
	if diff := differ(r.task, r.replayed()); diff != "" {
		r.t.Fatalf("the replayed task differs from the live one: %s", diff)
	}
	if e := r.task.State.Ended(); e != (r.task.EndedAt != 0) || e != (r.task.EndNumber != 0) {
		r.t.Fatalf("%s, ended at %d with end number %d", r.task.State, r.task.EndedAt, r.task.EndNumber)
	}
	r.checkCommands()
	r.checkEnd()
	if r.task.State.Ended() || r.task.Seq%8 == 0 {
		r.checkHistory()
	}
}

// stands says why a pending task would stand still though a step of it may begin: it is in no agent's queue, and the bound of its
// row is later than that time, so that the supervisor does not ask about it.
func stands(p *Plan, t *Task, bound Instant) string {
	if t.State != StatePending || t.WaitsFor != "" {
		return ""
	}
	for i, n := range t.ahead(p) {
		if may := max(n.when, t.StartAt, t.UpdatedAt); n.verb == verbBegin && bound > may {
			return fmt.Sprintf("step %d may begin at %d, it is in no queue, and the supervisor does not ask before %d", i, may, bound)
		}
	}
	return ""
}

// checkGaveUp wants no undo to give up before its time, which begins with its first command, and again with an operator's
// request.
func (r *rig) checkGaveUp(is *Record) {
	r.t.Helper()
	if is.Kind != KindUndoGaveUp || is.Step < 0 {
		return
	}
	ps := &r.plan.Steps[is.Step]
	if ps.Kind != CallStep || ps.UndoAttemptsMax != 0 || strings.Contains(is.Error, "its service remembers keys for") {
		return
	}
	var since Instant
	for i := range r.journal[:is.Seq-1] {
		switch row := &r.journal[i]; {
		case row.Round > r.task.Round || i > 0 && row.Round != r.journal[i-1].Round:
			since = 0
		case (row.Kind == KindCancelled || row.Kind == KindUndoAsked) && since != 0:
			since = row.At
		case row.Undo && row.Next == is.Step && since == 0:
			since = row.At
		}
	}
	if is.At < since.Add(ps.undoPatience()) {
		r.t.Fatalf("the undo of step %d gave up after %v, want %v: %s", is.Step, is.At.Sub(since), ps.undoPatience(), r.task)
	}
}

func (r *rig) checkCommands() {
	r.t.Helper()
	out := 0
	for i := range r.task.Steps {
		s := &r.task.Steps[i]
		if s.Out != 0 && s.kind == kindCall {
			out++
		}
		if s.Status == StepRunning && s.Out == 0 && !(s.probing() && r.plan.Steps[i].Probe && r.task.State == StateProcessing) {
			r.t.Fatalf("step %d runs without a command out: %s", i, r.task)
		}
	}
	if out > 0 && r.task.State != StateProcessing && r.task.State != StateUndoing {
		r.t.Fatalf("a command is out of a task that is %s: %s", r.task.State, r.task)
	}
}

func (r *rig) checkEnd() {
	r.t.Helper()
	for i := range r.task.Steps {
		s := &r.task.Steps[i]
		if r.task.State == StateProcessed && s.Status != StepDone && s.Status != StepSkipped && !r.byHand {
			r.t.Fatalf("processed with step %d %s", i, s.Status)
		}
		if r.task.State == StateUndone && s.Effect.Possible() && r.plan.Steps[i].Undoable && !r.byHand {
			r.t.Fatalf("undone with an effect of step %d left: %s", i, r.task)
		}
	}
}

// rowColumns names the first column of the task's row that differs.
func rowColumns(a, b *Task) string {
	switch {
	case a.State != b.State:
		return "state"
	case a.Bound != b.Bound:
		return "the bound"
	case a.WaitsFor != b.WaitsFor:
		return "waits_for"
	case a.LockedBy != b.LockedBy:
		return "locked_by"
	case a.Deadline != b.Deadline:
		return "the deadline"
	case a.Round != b.Round:
		return "the round"
	case a.PlanVersion != b.PlanVersion:
		return "the plan version"
	case a.EndedAt != b.EndedAt || a.EndNumber != b.EndNumber:
		return "the end"
	}
	return ""
}

// differ says how two tasks differ, apart from what is not journalled.
func differ(a, b *Task) string {
	a, b = a.clone(), b.clone()
	for _, t := range []*Task{a, b} {
		for i := range t.Steps {
			t.Steps[i] = t.Steps[i].Journalled()
		}
	}
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return fmt.Sprintf("\n%+v\n%+v", *a, *b)
}

func (t *Task) clone() *Task {
	c := *t
	c.Steps = slices.Clone(t.Steps)
	return &c
}

// String makes failures readable.
func (t *Task) String() string {
	s := fmt.Sprintf("task %s seq %d round %d bound %d deadline %d:", t.State, t.Seq, t.Round, t.Bound, t.Deadline)
	for i := range t.Steps {
		st := &t.Steps[i]
		s += fmt.Sprintf(" [%s try %d out %d due %d quiet %d dirty %v]", st.Status, st.Attempt, st.Out, st.Due, st.Effect.Open, st.Effect.Possible())
	}
	return s
}

// lastAsked is the number about which an agent is asked.
func lastAsked(r *rig) int64 {
	for i := range r.task.Steps {
		if asked := r.task.Steps[i].Effect.Asks; asked != 0 {
			return asked
		}
	}
	return 0
}

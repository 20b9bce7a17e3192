package dulytest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// Task is one task of an [Engine].
type Task struct {
	e       *Engine
	plan    *core.Plan
	program *expr.Program
	task    core.Task
	row     core.Task // as last written
	journal []core.Record
	wakes   core.Instant // when it is next woken; 0: it is not
	watched core.Instant // when it is next asked whether something is overdue; 0: it is not
	alerts  int

	parent   *Task // nil: it is no child
	children []*Task
	families map[int]*family // of the steps whose children, or their undo, are or were out
}

// Task is the task of an id, nil if there is none: so children are found, by <parent>~<step>, and those of an each by
// <parent>~<step>~<index>, from 0 on.
func (e *Engine) Task(id string) *Task { return e.tasks[id] }

// ID is the task's id.
func (t *Task) ID() string { return t.task.ID }

// State is where the task is in its life.
func (t *Task) State() duly.State { return duly.State(t.task.State) }

// Reason is why the task is where it is; empty where nothing went wrong.
func (t *Task) Reason() string { return t.task.Why }

// Deadline is when the task must be done.
func (t *Task) Deadline() time.Time { return t.task.Deadline.Time() }

// Failures is how many calls have failed or were silent, of all steps.
func (t *Task) Failures() int { return t.task.Failures }

// Alerts is how often an operator was told that an undo is in trouble.
func (t *Task) Alerts() int { return t.alerts }

// Step is where a step of the task is in its life: waiting, running, done, failed, undoing, undone or skipped; signalled is
// a signal step whose answer has come before it began. A step that the plan does not have is "unknown".
func (t *Task) Step(step duly.Named) string {
	i := t.plan.StepIndex(step.Name())
	if i < 0 || t.task.Steps == nil {
		return "unknown"
	}
	return t.task.StepWord(i)
}

// Ask is the token of what a signal step asks now, for [duly.Answer.To]; empty: it asks nothing.
func (t *Task) Ask(step duly.Named) string {
	i := t.plan.StepIndex(step.Name())
	if i < 0 || t.task.Steps == nil {
		return ""
	}
	return t.task.AskToken(t.plan, i)
}

// StepResult decodes the result of a step. Error: it has none, or another.
func (t *Task) StepResult(step duly.Named, out any) error {
	i := t.plan.StepIndex(step.Name())
	if i < 0 || t.task.Steps == nil {
		return fmt.Errorf("task %s: its plan has no step %s", t.task.ID, step.Name())
	}
	return t.decode(step.Name(), t.task.Steps[i].Result, out)
}

// decode reads a result as the agents' codec made it.
func (t *Task) decode(step string, data []byte, out any) error {
	what := "result"
	if step != "" {
		what = "result of step " + step
	}
	if len(data) == 0 {
		return fmt.Errorf("task %s: it has no %s", t.task.ID, what)
	}
	if t.e.codec != nil {
		var err error
		if data, err = t.e.codec.Decode(duly.Place{Type: t.task.Type, Task: t.task.ID, Step: step}, data); err != nil {
			return fmt.Errorf("task %s: %s: %w", t.task.ID, what, err)
		}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("task %s: %s: %w", t.task.ID, what, err)
	}
	return nil
}

// Trail is what became of the task's steps, a line for each end of an attempt in its order, such as "charge done", "ship
// refused" and "charge undone".
func (t *Task) Trail() []string {
	var trail []string
	for i := range t.journal {
		r := &t.journal[i]
		if r.Step < 0 || r.Kind == core.KindStarted {
			continue
		}
		trail = append(trail, t.plan.Steps[r.Step].Name+" "+string(r.Kind))
	}
	return trail
}

// Result decodes the task's own result. Error: it has none, or another.
func (t *Task) Result(out any) error { return t.decode("", t.task.Result, out) }

// Undone are the names of the steps that were undone, in that order.
func (t *Task) Undone() []string {
	var undone []string
	for i := range t.journal {
		if r := &t.journal[i]; r.Step >= 0 && r.StepStatus == core.StepUndone {
			undone = append(undone, t.plan.Steps[r.Step].Name)
		}
	}
	return undone
}

// WantProcessed reports a task that is not processed, with its trail.
func (t *Task) WantProcessed() {
	t.e.t.Helper()
	t.want(duly.StateProcessed)
}

// WantUndone reports a task that is not undone, and one whose steps were not undone in that order, with its trail.
func (t *Task) WantUndone(steps ...duly.Named) {
	t.e.t.Helper()
	if !t.want(duly.StateUndone) {
		return
	}
	var want []string
	for _, step := range steps {
		want = append(want, step.Name())
	}
	if got := t.Undone(); !slices.Equal(got, want) {
		t.e.t.Errorf("task %s: undone were %v, want %v; %s", t.task.ID, got, want, t.story())
	}
}

// WantError reports a task that is not in error because of that step, with its trail.
func (t *Task) WantError(step duly.Named) {
	t.e.t.Helper()
	if !t.want(duly.StateError) {
		return
	}
	if i := t.task.FailedStep - 1; i < 0 || t.plan.Steps[i].Name != step.Name() {
		t.e.t.Errorf("task %s: it is in error, but not because of step %s; %s", t.task.ID, step.Name(), t.story())
	}
}

// WantState reports a task that is in another state, with its trail.
func (t *Task) WantState(state duly.State) {
	t.e.t.Helper()
	t.want(state)
}

func (t *Task) want(state duly.State) bool {
	t.e.t.Helper()
	if got := t.State(); got != state {
		t.e.t.Errorf("task %s is %s, want %s; %s", t.task.ID, got, state, t.story())
		return false
	}
	return true
}

// story is what a failed assertion shows.
func (t *Task) story() string {
	story := "its trail: " + strings.Join(t.Trail(), ", ")
	if t.task.Why != "" {
		story += "; " + t.task.Why
	}
	return story
}

// results are those that ride on the commands of a step.
func (t *Task) results(step int) []core.StepResult {
	return t.task.AppendResults(nil, t.plan, t.plan.Carried(step))
}

// waitsForSignal reports whether the task, or a child of it, waits for a signal.
func (t *Task) waitsForSignal() bool {
	for i := range t.task.Steps {
		if t.plan.Steps[i].Kind == core.SignalStep && t.task.Steps[i].Status == core.StepRunning {
			return true
		}
	}
	for _, child := range t.children {
		if !child.task.State.Ended() && child.waitsForSignal() {
			return true
		}
	}
	return false
}

// dueBefore reports whether something of the task other than a signal is due by then.
func (t *Task) dueBefore(at core.Instant) bool {
	if t.task.State == core.StateUndoing {
		return true
	}
	for i := range t.task.Steps {
		s, kind := &t.task.Steps[i], t.plan.Steps[i].Kind
		open := s.Status == core.StepWaiting && s.Due != 0 || s.Out != 0 && (kind == core.CallStep || kind == core.WaitStep)
		if open && s.Due <= at {
			return true
		}
	}
	return false
}

// Signal answers a signal of a task, as [duly.Plan.Signal] does. Error: it is refused.
func Signal[In any](e *Engine, plan *duly.Plan[In], id string, answer duly.Answer[In]) error {
	step, payload, reason, ask, err := plan.PlayAnswer(id, answer)
	if err != nil {
		return err
	}
	t := e.tasks[id]
	if t == nil || t.task.Type != plan.Name() {
		return fmt.Errorf("signal task %s of type %s: %w", id, plan.Name(), duly.ErrNotFound)
	}
	ev := core.Event{Kind: core.EventSignal, Step: step, Result: payload, AskToken: ask}
	if reason != "" {
		ev.Code, ev.Error = core.CodeRefused, reason
	} else if e.codec != nil {
		if ev.Result, err = e.codec.Encode(duly.Place{Type: t.task.Type, Task: id, Step: step}, payload); err != nil {
			return err
		}
	}
	return e.ask(id, ev)
}

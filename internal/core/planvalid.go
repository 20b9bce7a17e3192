package core

import (
	"errors"
	"fmt"
	"time"
)

// ErrPlan is wrapped by every error of [Plan.Validate].
var ErrPlan = errors.New("plan cannot work")

// PlanError is what is wrong with a plan, and where, so that a file of it can be pointed into. It wraps ErrPlan.
type PlanError struct {
	Plan  string // its name
	Step  int    // index of the step; -1: the plan itself
	Field string // as files name it, without _ms; empty: the step or the plan as a whole
	text  string
	err   error // may be nil
}

// Error is the text, which names plan, step, field, value and limit.
func (e *PlanError) Error() string { return ErrPlan.Error() + ": " + e.text }

// Text is what is wrong, without the names of plan and step.
func (e *PlanError) Text() string { return e.err.Error() }

// Unwrap gives ErrPlan and, where it is a name's, ErrName.
func (e *PlanError) Unwrap() []error { return []error{ErrPlan, e.err} }

// PlanErrorsMax bounds how many errors of a plan are told at once.
const PlanErrorsMax = 100

// PlanErrors is all that is wrong with a plan, at most PlanErrorsMax and one of each field: what stands in the plan itself
// first, then step by step.
type PlanErrors []*PlanError

// Error has one after the other, a line each.
func (e PlanErrors) Error() string {
	var text string
	for i, one := range e {
		if i > 0 {
			text += "\n"
		}
		text += one.Error()
	}
	return text
}

// Unwrap gives each.
func (e PlanErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i := range e {
		all[i] = e[i]
	}
	return all
}

// Err is the errors, or nil if there are none.
func (e PlanErrors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// add keeps an error, unless the field has one already: what follows from a wrong field says nothing new.
func (e *PlanErrors) add(one *PlanError) {
	if len(*e) < PlanErrorsMax && !e.has(one.Step, one.Field) {
		*e = append(*e, one)
	}
}

func (e PlanErrors) has(step int, field string) bool {
	for _, one := range e {
		if one.Step == step && one.Field == field {
			return true
		}
	}
	return false
}

// Wrong makes an error about a field of the plan itself.
func (p *Plan) Wrong(field, format string, args ...any) *PlanError {
	err := fmt.Errorf(format, args...)
	return &PlanError{Plan: p.Name, Step: -1, Field: field, text: fmt.Sprintf("plan %s: %v", p.shown(), err), err: err}
}

// shown is the name, cut if it cannot be one.
func (p *Plan) shown() string { return ShortText(p.Name, NameBytesMax) }

// shownStep names a step: by its number if its name cannot be one.
func (p *Plan) shownStep(i int) string {
	if CheckName("step", p.Steps[i].Name) != nil {
		return fmt.Sprintf("number %d", i+1)
	}
	return p.Steps[i].Name
}

// WrongStep makes an error about a field of a step.
func (p *Plan) WrongStep(i int, field, format string, args ...any) *PlanError {
	err := fmt.Errorf(format, args...)
	return &PlanError{Plan: p.Name, Step: i, Field: field, text: fmt.Sprintf("plan %s: step %s: %v", p.shown(), p.shownStep(i), err), err: err}
}

// inspection finds what is wrong with a plan.
type inspection struct {
	*Plan
	before []StepSet      // AllAncestors
	first  map[string]int // the first step of a name
	found  PlanErrors
}

func (p *inspection) wrong(field, format string, args ...any) {
	p.found.add(p.Wrong(field, format, args...))
}

func (p *inspection) wrongStep(i int, field, format string, args ...any) {
	p.found.add(p.WrongStep(i, field, format, args...))
}

// Validate refuses a plan that cannot work; its errors are [PlanErrors]. payloadMax is the
// largest message the server takes in bytes (its max_payload); 0 skips that check. The plan
// must have its defaults filled in. Expressions are looked at for their length alone.
func (p *Plan) Validate(payloadMax int) error {
	if n := len(p.Steps); n > StepsMax { // too many to look at
		return PlanErrors{p.Wrong("steps", "%d steps, want 1 to %d", n, StepsMax)}
	}
	look := inspection{Plan: p, before: p.AllAncestors(), first: make(map[string]int, len(p.Steps))}
	look.whole()
	for i := range p.Steps {
		look.step(i)
	}
	look.size(payloadMax)
	return look.found.Err()
}

// whole checks what a plan says about all its steps together.
func (p *inspection) whole() {
	if err := CheckName("type", p.Name); err != nil {
		p.found.add(&PlanError{Plan: p.Name, Step: -1, Field: "name", text: err.Error(), err: err})
	}
	if p.Version < 1 {
		p.wrong("version", "version %d is below 1", p.Version)
	}
	if len(p.Steps) == 0 {
		p.wrong("steps", "0 steps, want 1 to %d", StepsMax)
	}
	for _, d := range []named{{"complete_by", p.CompleteBy}, {"grace", p.Grace}} {
		if err := checkDuration(d); err != nil {
			p.wrong(d.name, "%w", err)
		}
	}
	switch p.Admission {
	case AdmissionQueue, AdmissionOff, AdmissionWarn, AdmissionRefuse:
	default:
		p.wrong("admission", "admission is %s, want queue, off, warn or refuse", QuoteShort(string(p.Admission)))
	}
	if p.QueueFor != 0 && (p.QueueFor < QueueForMin || p.QueueFor > QueueForMax) {
		p.wrong("queue_for", "queue_for is %v, want %v to %v", p.QueueFor, QueueForMin, QueueForMax)
	}
	if p.UndoReserve != 0 {
		if err := checkDuration(named{"undo_reserve", p.UndoReserve}); err != nil {
			p.wrong("undo_reserve", "%w", err)
		}
	}
	if p.UndoReserve >= p.CompleteBy && !p.found.has(-1, "complete_by") {
		p.wrong("undo_reserve", "undo_reserve is %v, want less than the task's complete_by of %v", p.UndoReserve, p.CompleteBy)
	}
	for _, x := range []length{{"result", len(p.Result), ExpressionBytesMax}, {"input_schema", len(p.InputSchema), schemaBytesMax}} {
		if x.bytes > x.max {
			p.wrong(x.name, "%s has %d bytes, want at most %d", x.name, x.bytes, x.max)
		}
	}
	if p.InputMax < 1 || p.InputMax > InputBytesMax {
		p.wrong("input_max", "input_max is %d, want 1 to %d", p.InputMax, InputBytesMax)
	}
}

func (p *inspection) step(i int) {
	s := &p.Steps[i]
	if err := CheckName("step", s.Name); err != nil {
		p.found.add(&PlanError{Plan: p.Name, Step: i, Field: "name", text: fmt.Sprintf("plan %s: step number %d: %v", p.shown(), i+1, err), err: err})
	}
	p.order(i)
	if !s.Kind.Known() {
		p.wrongStep(i, "kind", "kind is %s, want call, wait, signal, task or each", QuoteShort(string(s.Kind)))
		return // what else it may say depends on that
	}
	p.kind(i)
	p.tries(i)
	if s.Parent() {
		p.child(i)
	}
	for _, x := range []length{{"when", len(s.When), ExpressionBytesMax}, {"with", len(s.Input), ExpressionBytesMax},
		{"until", len(s.Until), ExpressionBytesMax}, {"elements", len(s.Elements), ExpressionBytesMax}, {"schema", len(s.Schema), schemaBytesMax}} {
		if x.bytes > x.max {
			p.wrongStep(i, x.name, "%s has %d bytes, want at most %d", x.name, x.bytes, x.max)
		}
	}
}

// Parent reports whether the step has child tasks.
func (s *Step) Parent() bool { return s.Kind.Parent() }

// kind checks that a step says what its kind needs, and nothing that its kind has no use for.
func (p *inspection) kind(i int) {
	s := &p.Steps[i]
	call, wait, signal, each := s.Kind == CallStep, s.Kind == WaitStep, s.Kind == SignalStep, s.Kind == EachStep
	undone := call || s.Parent()
	for _, f := range []struct {
		name    string
		has, is bool
	}{
		{"agent", call, s.Agent != ""}, {"undoable", undone, s.Undoable}, {"complete_by", !wait, s.CompleteBy != 0},
		{"undo_complete_by", undone, s.UndoCompleteBy != 0}, {"undo_attempts_max", undone, s.UndoAttemptsMax != 0},
		{"undo_patience", undone, s.UndoPatience != 0}, {"undo_backoff_cap", undone, s.UndoBackoffCap != 0},
		{"backoff", !wait, s.Backoff != 0}, {"backoff_cap", !wait, s.BackoffCap != 0}, {"result_max", !wait, s.ResultMax != 0},
		{"with", undone, s.Input != ""}, {"uses", call, s.Narrow || len(s.Uses) > 0}, {"least", call, s.Least != 0}, {"key_lasts", call, s.KeyLasts != 0}, {"probe", call, s.Probe},
		{"for", wait, s.For != 0}, {"until", wait, s.Until != ""}, {"schema", signal, s.Schema != ""}, {"ask", signal, s.Ask != ""},
		{"child", s.Parent(), s.Child != ""}, {"elements", each, s.Elements != ""}, {"elements_max", each, s.ElementsMax != 0},
		{"parallel", each, s.Parallel != 0}, {"failures_max", each, s.FailuresMax != 0},
	} {
		if f.is && !f.has {
			p.wrongStep(i, f.name, "%s is said, but a step of kind %s has none", f.name, s.Kind)
		}
	}
	switch {
	case call && s.Agent == "":
		p.wrongStep(i, "agent", "agent is not said: a call needs the one that its commands go to")
	case call:
		if err := CheckAgent(s.Agent); err != nil {
			p.wrongStep(i, "agent", "%w", err)
		}
	case wait && s.For != 0 && s.Until != "":
		p.wrongStep(i, "until", "for and until are said, want one of them")
	case wait && s.For == 0 && s.Until == "":
		p.wrongStep(i, "", "neither for nor until is said, want one of them")
	case s.Ask != "" && s.Ask != AskRequired:
		p.wrongStep(i, "ask", "ask is %s, want required, or none", QuoteShort(string(s.Ask)))
	case s.Parent() && !s.Undoable:
		p.wrongStep(i, "undoable", "undoable is false, but a step of kind %s is undone as its child is: say it in the steps of the child", s.Kind)
	}
}

// String is the word for the kind that files have.
func (k StepKind) String() string {
	if k == CallStep {
		return "call"
	}
	return string(k)
}

// Known reports whether this binary has steps of that kind.
func (k StepKind) Known() bool {
	switch k {
	case CallStep, WaitStep, SignalStep, TaskStep, EachStep:
		return true
	}
	return false
}

// order checks the steps that a step names.
func (p *inspection) order(i int) {
	s := &p.Steps[i]
	if j, twice := p.first[s.Name]; !twice {
		p.first[s.Name] = i
	} else {
		err := fmt.Errorf("steps %d and %d are both named %s", j+1, i+1, p.shownStep(i))
		p.found.add(&PlanError{Plan: p.Name, Step: i, Field: "name", text: fmt.Sprintf("plan %s: %v", p.shown(), err), err: err})
	}
	if len(s.After) > i {
		p.wrongStep(i, "after", "after names %d steps, but %d are earlier", len(s.After), i)
	}
	for _, a := range s.After {
		if a < 0 || a >= i {
			p.wrongStep(i, "after", "after names step number %d, which is not an earlier step (a cycle cannot run)", a+1)
		}
	}
	if len(s.Uses) > 0 && !s.Narrow {
		p.wrongStep(i, "uses", "uses names steps, but narrow is false")
	}
	if len(s.Uses) > StepsMax {
		p.wrongStep(i, "uses", "uses names %d steps, want at most %d", len(s.Uses), StepsMax)
	}
	for _, u := range s.Uses {
		switch {
		case u < 0 || u >= len(p.Steps):
			p.wrongStep(i, "uses", "uses names step number %d of %d", u+1, len(p.Steps))
		case !p.before[i].Has(u):
			p.wrongStep(i, "uses", "uses names %s, which %s does not come after", p.shownStep(u), p.shownStep(i))
		}
	}
}

// tries checks numbers, times and the policy of a step's attempts.
func (p *inspection) tries(i int) {
	s := &p.Steps[i]
	undone := s.Kind == CallStep || s.Parent()
	for _, n := range []struct {
		name       string
		has        bool
		value, max int
	}{{"attempts_max", true, s.AttemptsMax, AttemptsLimit}, {"undo_attempts_max", undone && s.UndoAttemptsMax != 0, s.UndoAttemptsMax, AttemptsLimit}, {"result_max", s.Kind != WaitStep, s.ResultMax, ResultBytesMax}} {
		if n.has && (n.value < 1 || n.value > n.max) {
			p.wrongStep(i, n.name, "%s is %d, want 1 to %d", n.name, n.value, n.max)
		}
	}
	if s.Kind == WaitStep && s.AttemptsMax != 1 {
		p.wrongStep(i, "attempts_max", "attempts_max is %d, want 1: a wait that failed would fail again", s.AttemptsMax)
	}
	switch s.OnExhausted {
	case PolicyUndo, PolicyWait, PolicyError, PolicySkip:
	default:
		p.wrongStep(i, "on_exhausted", "on_exhausted is %s, want undo, wait, error or skip", QuoteShort(string(s.OnExhausted)))
	}
	for _, d := range []named{{"undo_patience", s.UndoPatience}, {"undo_backoff_cap", s.UndoBackoffCap}, {"least", s.Least}, {"for", s.For}} {
		if d.value == 0 {
			continue // the default, or of another kind
		}
		if err := checkDuration(d); err != nil {
			p.wrongStep(i, d.name, "%w", err)
		}
	}
	p.times(i, undone)
}

// times checks the times of a step against each other and the task's.
func (p *inspection) times(i int, undone bool) {
	s := &p.Steps[i]
	times := []named{{"pause", s.Pause}}
	if s.Kind != WaitStep {
		times = append(times, named{"complete_by", s.CompleteBy}, named{"backoff", s.Backoff}, named{"backoff_cap", s.BackoffCap})
	}
	if undone {
		times = append(times, named{"undo_complete_by", s.UndoCompleteBy})
	}
	if s.Kind == CallStep {
		times = append(times, named{"key_lasts", s.KeyLasts})
	}
	for _, d := range times {
		if err := checkDuration(d); err != nil {
			p.wrongStep(i, d.name, "%w", err)
		}
	}
	bounded := !p.found.has(-1, "complete_by") // by the task's
	if s.Backoff > s.BackoffCap && !p.found.has(i, "backoff_cap") {
		p.wrongStep(i, "backoff", "backoff is %v, want at most its cap of %v", s.Backoff, s.BackoffCap)
	}
	if s.CompleteBy > p.CompleteBy && bounded {
		p.wrongStep(i, "complete_by", "complete_by is %v, want at most the task's of %v", s.CompleteBy, p.CompleteBy)
	}
	if s.For > p.CompleteBy && bounded {
		p.wrongStep(i, "for", "for is %v, want at most the task's complete_by of %v", s.For, p.CompleteBy)
	}
	if s.Least > s.CompleteBy && !p.found.has(i, "complete_by") {
		p.wrongStep(i, "least", "least is %v, want at most the step's complete_by of %v", s.Least, s.CompleteBy)
	}
}

// child checks what a step says about its child tasks.
func (p *inspection) child(i int) {
	s := &p.Steps[i]
	if err := CheckName("child", s.Child); err != nil {
		p.wrongStep(i, "child", "%w", err)
	}
	if s.Child == p.Name {
		p.wrongStep(i, "child", "child is %s, the plan itself: its tasks would have tasks without end", s.Child)
	}
	if s.Kind != EachStep {
		return
	}
	if s.Elements == "" {
		p.wrongStep(i, "elements", "elements is not said, want an expression that gives a list")
	}
	for _, n := range []struct {
		name            string
		value, min, max int
	}{{"elements_max", s.ElementsMax, 1, ElementsLimit}, {"parallel", s.Parallel, 1, ParallelLimit}, {"failures_max", s.FailuresMax, 0, max(s.ElementsMax, 0)}} {
		if n.value < n.min || n.value > n.max {
			p.wrongStep(i, n.name, "%s is %d, want %d to %d", n.name, n.value, n.min, n.max)
		}
	}
}

// size makes sure that every command, with its input and the results that ride on it at their limits, still fits
// one message. Its undo carries its own result as well. Else a task could come to a step whose command cannot be
// sent, long after it was accepted.
func (p *inspection) size(payloadMax int) {
	carried := p.AllCarried(p.before)
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind != CallStep {
			continue
		}
		input := p.InputMax
		// Its own input is what an expression makes of the task's: of any size that an input may have.
		if s.Input != "" {
			input = InputBytesMax
		}
		results := 0
		carried[i].Each(func(j int) { results += p.Steps[j].ResultMax })
		if s.Undoable {
			results += s.ResultMax
		}
		rest := envelopeBytesMax + max(0, carried[i].Len()-envelopeNames)*resultNameBytesMax
		if worst := input + results + rest; payloadMax > 0 && worst > payloadMax {
			p.wrongStep(i, "uses", "its command could reach %d bytes (input %d, results %d, the rest %d), over the server's max_payload of %d; name in uses the steps whose results it needs, or lower input_max or their result_max",
				worst, input, results, rest, payloadMax)
		}
	}
}

// named is a duration of a plan.
type named struct {
	name  string
	value time.Duration
}

func checkDuration(d named) error {
	if d.value < time.Millisecond || d.value > DurationMax {
		return fmt.Errorf("%s is %v, want 1ms to %v", d.name, d.value, DurationMax)
	}
	return nil
}

// length is the length of a text of a plan.
type length struct {
	name       string
	bytes, max int
}

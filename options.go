package duly

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// definition is a step before it stands in a plan.
type definition struct {
	step     core.Step
	self     *identity // which step it is: others may have its name
	after    []Named
	afterSet bool
	uses     []Named
	payload  reflect.Type // of a signal
	err      error        // the first option that says what cannot be
}

// identity tells a step from another of the same name. It is not of size zero, so that two have two addresses.
type identity struct{ _ byte }

// define begins the definition of a step.
func define(name string, kind core.StepKind) definition {
	return definition{step: core.Step{Name: name, Kind: kind}, self: new(identity)}
}

// refuse keeps what is wrong with an option: where the step is used it is returned.
func (d *definition) refuse(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("step %s: %w", d.step.Name, fmt.Errorf(format, args...))
	}
}

// duration sets one of the step's times. A zero is refused here, because further on it
// would mean that nothing was said.
func (d *definition) duration(option string, to *time.Duration, value time.Duration) {
	if value == 0 {
		d.refuse("%s(0), want 1ms to %v", option, core.DurationMax)
	}
	*to = value
}

// count is duration for a number.
func (d *definition) count(option string, to *int, value, most int) {
	if value == 0 {
		d.refuse("%s(0), want 1 to %d", option, most)
	}
	*to = value
}

// expression sets one of the step's expressions. An empty one is refused here, because further on it would mean that
// nothing was said.
func (d *definition) expression(option string, to *string, value string) {
	switch {
	case strings.TrimSpace(value) == "":
		d.refuse("%s: the expression is empty", option)
	case *to != "":
		d.refuse("%s(%s): there is another already, %s", option, core.QuoteShort(value), core.QuoteShort(*to))
	}
	*to = value
}

// names keeps the steps that an option names.
func (d *definition) names(option string, steps []Named) (named []Named) {
	for i, step := range steps {
		if step == nil || step.Name() == "" {
			d.refuse("%s: argument %d is nil or has no name", option, i+1)
			continue
		}
		named = append(named, step)
	}
	return named
}

// resolve finds the indexes of steps among those before; says is what the option says of them.
func (d *definition) resolve(before []definition, steps []Named, says string) ([]int, error) {
	var indexes []int
	for _, step := range steps {
		i := slices.IndexFunc(before, func(b definition) bool { return b.step.Name == step.Name() })
		if i < 0 && step.Name() == d.step.Name {
			return nil, fmt.Errorf("step %s: %s names the step itself", d.step.Name, says)
		}
		if i < 0 {
			return nil, fmt.Errorf("step %s: %s names %s, which is not an earlier step of the plan", d.step.Name, says, step.Name())
		}
		if before[i].self != step.define().self {
			return nil, fmt.Errorf("step %s: %s names %s, which is a step of another plan: this one has a step of its own of that name", d.step.Name, says, step.Name())
		}
		indexes = append(indexes, i)
	}
	return indexes, nil
}

// CheckOption changes the definition of a [Check].
type CheckOption interface{ forCheck(*definition) }

// StepOption changes the definition of a [Step].
type StepOption interface{ forStep(*definition) }

// WaitOption changes the definition of a [Wait].
type WaitOption interface{ forWait(*definition) }

// SignalOption changes the definition of a [Signal].
type SignalOption interface{ forSignal(*definition) }

// ChildOption changes the definition of a [Child].
type ChildOption interface{ forChild(*definition) }

// EachOption changes the definition of an [Each].
type EachOption interface{ forEach(*definition) }

// Option changes the definition of a step that calls an agent: a [Check] or a [Step].
type Option interface {
	CheckOption
	StepOption
}

// ResultOption changes the definition of a step that has a result: a [Check], a [Step], a [Signal] or a [Child].
type ResultOption interface {
	Option
	SignalOption
	ChildOption
}

// WorkOption changes the definition of any step that may fail: all but a [Wait].
type WorkOption interface {
	ResultOption
	EachOption
}

// OrderOption changes the definition of any step.
type OrderOption interface {
	WorkOption
	WaitOption
}

// option is all of them. What a function returns says which steps it is for.
type option func(*definition)

func (o option) forCheck(d *definition)  { o(d) }
func (o option) forStep(d *definition)   { o(d) }
func (o option) forWait(d *definition)   { o(d) }
func (o option) forSignal(d *definition) { o(d) }
func (o option) forChild(d *definition)  { o(d) }
func (o option) forEach(d *definition)   { o(d) }

// UndoOption changes how a [Step] is undone. A check has no undo.
type UndoOption func(*definition)

func (o UndoOption) forStep(d *definition) { o(d) }

// CompleteBy is how long one call of the step may take, at most as long as the task
// ([TaskCompleteBy]); 10 s unless said, or the task's time if that is shorter. Then
// its context ends, its answer no longer counts, and another attempt begins.
//
// Of a [Signal] it is how long it is waited for, of a [Child] and an [Each] how long the
// children may take; the task's time unless said.
func CompleteBy(d time.Duration) WorkOption {
	return option(func(def *definition) { def.duration("CompleteBy", &def.step.CompleteBy, d) })
}

// UndoCompleteBy is how long one call of undo may take; CompleteBy unless said.
func UndoCompleteBy(d time.Duration) UndoOption {
	return func(def *definition) { def.duration("UndoCompleteBy", &def.step.UndoCompleteBy, d) }
}

// Attempts is how many calls may fail or stay silent before [OnExhausted]
// applies, 1 to 1000; 3 unless said.
func Attempts(most int) Option {
	return option(func(def *definition) { def.count("Attempts", &def.step.AttemptsMax, most, core.AttemptsLimit) })
}

// UndoAttempts is how many calls of undo may fail before it gives up and an operator
// has to act, 1 to 1000. Unless said an undo is tried for a day, and an operator is told
// after ten failures or a minute.
func UndoAttempts(most int) UndoOption {
	return func(def *definition) { def.count("UndoAttempts", &def.step.UndoAttemptsMax, most, core.AttemptsLimit) }
}

// Backoff is the pause before the second attempt, doubled for each one after it
// up to most, which is not less, each drawn at random between nothing and that;
// 200 ms and 10 s unless said.
func Backoff(first, most time.Duration) Option {
	return option(func(def *definition) {
		def.duration("Backoff", &def.step.Backoff, first)
		def.duration("Backoff", &def.step.BackoffCap, most)
	})
}

// Policy is what happens when a step's attempts are exhausted.
type Policy string

// The policies of [OnExhausted].
const (
	PolicyUndo  Policy = Policy(core.PolicyUndo)  // undo the whole task; the default
	PolicyPause Policy = Policy(core.PolicyWait)  // pause (see Pause), then start over with the attempts
	PolicyError Policy = Policy(core.PolicyError) // keep what was done and alert an operator
	PolicySkip  Policy = Policy(core.PolicySkip)  // undo what the step may have done, and go on without it: see Optional
)

// OnExhausted chooses what happens when the step has failed: its attempts are exhausted, a signal was refused or did
// not come, a child was undone.
func OnExhausted(policy Policy) WorkOption {
	return option(func(def *definition) { def.step.OnExhausted = core.Policy(policy) })
}

// Optional is OnExhausted([PolicySkip]): a step that fails is undone by itself, and the task goes on without it. What
// comes after the step begins then, and finds no result of it.
func Optional() WorkOption { return OnExhausted(PolicySkip) }

// Pause is how long [PolicyPause] waits; 5 minutes unless said.
func Pause(d time.Duration) Option {
	return option(func(def *definition) { def.duration("Pause", &def.step.Pause, d) })
}

// Named is any step of a plan: what [After] and [Uses] take.
type Named interface {
	Name() string
	define() definition
}

// After names the steps that this one comes after, instead of the one defined before it. They must stand earlier in
// the plan. Steps that do not come after one another run side by side. No argument: the step begins with the task.
func After(steps ...Named) OrderOption {
	return option(func(def *definition) { def.after, def.afterSet = def.names("After", steps), true })
}

// When is the condition of a step, an expression in CEL over input and results that is true or false: it is asked
// once, when all that the step comes after is done. When it is false the step is skipped, and what comes after it
// begins.
//
//	duly.When("input.express && results.credit.points > 500")
//
// A result that may be missing, because its step can be skipped, is asked for with has(results.credit).
func When(expression string) OrderOption {
	return option(func(def *definition) { def.expression("When", &def.step.When, expression) })
}

// Uses names the steps whose results the handlers of this one read. Unless said they get those of all steps that it
// comes after, directly or through others; in a plan of many steps with large results that can be more than a message
// holds. No argument: none.
func Uses(steps ...Named) Option {
	return option(func(def *definition) { def.uses, def.step.Narrow = def.names("Uses", steps), true })
}

// KeyLasts is how long the service of a step remembers the key of a call from its first use, less the plan's grace; a day
// unless said. No call of do or undo is made, or waited for, by a key that is older: the step is asked about ([Probed]), or
// undone, or an operator has to say what is there.
func KeyLasts(d time.Duration) Option {
	return option(func(def *definition) { def.duration("KeyLasts", &def.step.KeyLasts, d) })
}

// Least is the least time that a call of the step is worth beginning with: when the task's deadline is nearer, the
// task is undone at once.
func Least(d time.Duration) Option {
	return option(func(def *definition) { def.duration("Least", &def.step.Least, d) })
}

// Probed has the step's agent asked what became of a do that was not answered by its complete-by, before the step is
// tried again or undone: see [Step.ServeProbe]. What the agent says decides: done completes the step, absent lets it be tried
// again. The step waits for that as long as for a do, 2 to 30 s; then it goes on as one that is not known.
func Probed() Option {
	return option(func(def *definition) { def.step.Probe = true })
}

// ElementInput is an expression in CEL that makes the input of each child: over input, results, element and index, which
// begins with 0. Unless said the element is the input.
func ElementInput(expression string) EachOption {
	return option(func(def *definition) { def.expression("ElementInput", &def.step.Input, expression) })
}

// Parallel is how many children are open at a time, 1 to 10,000; 100 unless said.
func Parallel(most int) EachOption {
	return option(func(def *definition) { def.count("Parallel", &def.step.Parallel, most, core.ParallelLimit) })
}

// FailuresMax is how many children may come to be undone before the step fails, and with it all of them; 0 unless
// said.
func FailuresMax(most int) EachOption {
	return option(func(def *definition) {
		if most < 0 {
			def.refuse("FailuresMax(%d), want 0 or more", most)
		}
		def.step.FailuresMax = most
	})
}

// AskRequired makes an answer to a [Signal] say which ask it is for, from the first on: see [Answer.To]. It is taken once all
// that the signal comes after is over.
func AskRequired() SignalOption {
	return option(func(def *definition) { def.step.Ask = core.AskRequired })
}

// ResultMax is how many bytes of JSON the step's result may have; 64 KiB, the
// most, unless said. A larger result is a failed attempt.
func ResultMax(bytes int) ResultOption {
	return option(func(def *definition) { def.count("ResultMax", &def.step.ResultMax, bytes, core.ResultBytesMax) })
}

// NamespaceOption is what [Namespace] makes.
type NamespaceOption string

func (o NamespaceOption) forClient(c *Client)     { c.namespace = string(o) }
func (o NamespaceOption) forAgent(c *agentConfig) { c.namespace = string(o) }

// Namespace is that of the installation to work with, as its nodes are told by
// --namespace; "duly", also for an empty one, unless said. [NewClient] and
// [NewAgent] refuse one that no installation can have.
func Namespace(name string) NamespaceOption { return NamespaceOption(name) }

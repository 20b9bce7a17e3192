package duly

import (
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// definition is a step before it stands in a plan.
type definition struct {
	step     core.Step
	after    []string
	afterSet bool
	err      error // the first option that says what cannot be
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

// resolve finds the indexes of the names in after among the steps before.
func (d *definition) resolve(before []core.Step) ([]int, error) {
	var indexes []int
	for _, name := range d.after {
		i := slices.IndexFunc(before, func(s core.Step) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("step %s comes after %s, which is not an earlier step of the plan", d.step.Name, name)
		}
		indexes = append(indexes, i)
	}
	return indexes, nil
}

// CheckOption changes the definition of a [Check].
type CheckOption interface{ forCheck(*definition) }

// StepOption changes the definition of a [Step].
type StepOption interface{ forStep(*definition) }

// Option changes the definition of a [Check] or a [Step].
type Option func(*definition)

func (o Option) forCheck(d *definition) { o(d) }
func (o Option) forStep(d *definition)  { o(d) }

// UndoOption changes how a [Step] is undone. A check has no undo.
type UndoOption func(*definition)

func (o UndoOption) forStep(d *definition) { o(d) }

// CompleteBy is how long one call of the step may take, at most as long as the task
// ([TaskCompleteBy]); 10 s unless said, or the task's time if that is shorter. Then
// its context ends, its answer no longer counts, and another attempt begins.
func CompleteBy(d time.Duration) Option {
	return func(def *definition) { def.duration("CompleteBy", &def.step.CompleteBy, d) }
}

// UndoCompleteBy is how long one call of undo may take; CompleteBy unless said.
func UndoCompleteBy(d time.Duration) UndoOption {
	return func(def *definition) { def.duration("UndoCompleteBy", &def.step.UndoCompleteBy, d) }
}

// Attempts is how many calls may fail or stay silent before [OnExhausted]
// applies, 1 to 1000; 3 unless said.
func Attempts(most int) Option {
	return func(def *definition) { def.count("Attempts", &def.step.AttemptsMax, most, core.AttemptsLimit) }
}

// UndoAttempts is how many calls of undo may fail before it gives up and an operator
// has to act. Unless said, and with 10, an undo is tried for a day, and an operator is
// told after ten failures or a minute.
func UndoAttempts(most int) UndoOption {
	return func(def *definition) { def.count("UndoAttempts", &def.step.UndoAttemptsMax, most, core.AttemptsLimit) }
}

// Backoff is the pause before the second attempt, doubled for each one after it
// up to most, which is not less, each drawn at random between nothing and that;
// 200 ms and 10 s unless said.
func Backoff(first, most time.Duration) Option {
	return func(def *definition) {
		def.duration("Backoff", &def.step.Backoff, first)
		def.duration("Backoff", &def.step.BackoffCap, most)
	}
}

// Policy is what happens when a step's attempts are exhausted.
type Policy string

// The policies of [OnExhausted].
const (
	PolicyUndo  Policy = Policy(core.PolicyUndo)  // undo the whole task; the default
	PolicyPause Policy = Policy(core.PolicyWait)  // pause (see Pause), then start over with the attempts
	PolicyError Policy = Policy(core.PolicyError) // keep what was done and alert an operator
)

// OnExhausted chooses what happens when the step's attempts are exhausted.
func OnExhausted(policy Policy) Option {
	return func(def *definition) { def.step.OnExhausted = core.Policy(policy) }
}

// Pause is how long [PolicyPause] waits; 5 minutes unless said.
func Pause(d time.Duration) Option {
	return func(def *definition) { def.duration("Pause", &def.step.Pause, d) }
}

// Named is what [After] takes: a [Check] or a [Step] of any types.
type Named interface{ Name() string }

// After names the steps that must be done before this one, instead of the one
// defined before it. They must stand earlier in the plan. No argument: none.
func After(steps ...Named) Option {
	return func(def *definition) {
		def.after, def.afterSet = nil, true
		for i, step := range steps {
			if step == nil || step.Name() == "" {
				def.refuse("After: argument %d is nil or has no name", i+1)
				continue
			}
			def.after = append(def.after, step.Name())
		}
	}
}

// ResultMax is how many bytes of JSON the step's result may have; 64 KiB, the
// most, unless said. A larger result is a failed attempt.
func ResultMax(bytes int) Option {
	return func(def *definition) { def.count("ResultMax", &def.step.ResultMax, bytes, core.ResultBytesMax) }
}

// NamespaceOption is what [Namespace] makes.
type NamespaceOption string

func (o NamespaceOption) forClient(c *Client)     { c.namespace = string(o) }
func (o NamespaceOption) forAgent(c *agentConfig) { c.namespace = string(o) }

// Namespace is that of the installation to work with, as its nodes are told by
// --namespace; "duly", also for an empty one, unless said. [NewClient] and
// [NewAgent] refuse one that no installation can have.
func Namespace(name string) NamespaceOption { return NamespaceOption(name) }

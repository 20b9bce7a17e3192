package dulytest

import (
	"encoding/json"
	"fmt"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
)

// Rule says what becomes of the calls of a step: see [Engine.On]. Its methods return it, so that they can be written
// one after the other. The newest rule that matches a call applies to it; where none matches, the handler's
// answer counts.
type Rule struct {
	e        *Engine
	step     string
	undo     bool
	attempt  int    // 0: each
	task     string // empty: each
	used     int
	silent   bool
	lost     bool
	late     bool
	unserved bool
	err      error
	stub     []byte
	delay    time.Duration
}

// On makes a rule for all do calls of a step.
func (e *Engine) On(step duly.Named) *Rule {
	r := &Rule{e: e, step: step.Name()}
	e.rules = append(e.rules, r)
	return r
}

// Undo makes the rule one for the undo calls.
func (r *Rule) Undo() *Rule { r.undo = true; return r }

// Attempt makes the rule one for that attempt alone: 1, 2, 3 …
func (r *Rule) Attempt(n int) *Rule { r.attempt = n; return r }

// Task makes the rule one for the calls of that task alone.
func (r *Rule) Task(id string) *Rule { r.task = id; return r }

// Fail has the calls fail with err, without a call of the handler. An error of duly.Refuse is final, any other is tried
// again.
func (r *Rule) Fail(err error) *Rule { r.err = err; return r }

// Silent has the calls never answered, without a call of the handler.
func (r *Rule) Silent() *Rule { r.silent = true; return r }

// Lost has the answers lost: the handler is called, and takes effect.
func (r *Rule) Lost() *Rule { r.lost = true; return r }

// Late has the answers come so long after the complete-by: the handler is called, and takes effect.
func (r *Rule) Late(after time.Duration) *Rule { r.late, r.delay = true, after; return r }

// Takes has the answers come so long after the call.
func (r *Rule) Takes(d time.Duration) *Rule { r.delay = d; return r }

// Unserved has the calls find no agent: they wait for one. [Rule.Stop] brings it.
func (r *Rule) Unserved() *Rule { r.unserved = true; return r }

// Answer has the calls answered with out, without a handler: for steps that the test is not about. Undo calls succeed.
func (r *Rule) Answer(out any) *Rule {
	r.e.t.Helper()
	data, err := json.Marshal(out)
	if err != nil {
		r.e.t.Fatalf("answer of step %s: %v", r.step, err)
	}
	r.stub = data
	return r
}

// Stop ends the rule.
func (r *Rule) Stop() { r.step = "" }

// Used is how many calls have gone by the rule.
func (r *Rule) Used() int { return r.used }

// ruleOf is the newest rule for a command, nil if there is none.
func (e *Engine) ruleOf(cmd *core.Command) *Rule {
	for i := len(e.rules) - 1; i >= 0; i-- {
		r := e.rules[i]
		stubbed := r.stub != nil && cmd.Undo // its undo succeeds, too
		if r.step == cmd.Step && (r.undo == cmd.Undo || stubbed) && (r.attempt == 0 || r.attempt == cmd.Attempt) && (r.task == "" || r.task == cmd.Task) {
			return r
		}
	}
	return nil
}

// String is for the messages of tests.
func (r *Rule) String() string {
	return fmt.Sprintf("rule for step %s (undo %v, attempt %d), used %d times", r.step, r.undo, r.attempt, r.used)
}

package main

// moneyMutants are faults that charge without an approval, round an amount, or change the order of a plan's steps.
var moneyMutants = []mutant{
	{
		name: "ask-of-any-input", invariant: 5, file: "internal/core/asks.go",
		old: "t.Round, t.TakenUp, t.Input)", new: "t.Round, t.TakenUp, \"\")",
		fault: "an approval of one amount is taken for another",
		run:   "^TestAskTokenNamesAll$",
	},
	{
		name: "ask-of-any-version", invariant: 5, file: "internal/core/asks.go",
		old: "p.Steps[i].Name, p.Version, t.Round", new: "p.Steps[i].Name, 1, t.Round",
		fault: "an approval under one version of the plan is taken under another",
		run:   "^TestAskTokenNamesAll$",
	},
	{
		name: "old-answer-without-its-ask", invariant: 5, file: "internal/core/asks.go",
		old: "return t.TakenUp != 0 || p.Steps[i].Ask == AskRequired", new: "return p.Steps[i].Ask == AskRequired",
		fault: "an answer that does not say what it is for is taken after the input has changed",
		run:   "^(TestAskToken|TestEditVoidsAnswers|TestNewRoundAsksAgain)$",
	},
	{
		name: "edit-keeps-the-approval", invariant: 5, file: "internal/core/asks.go",
		old: "if s := &t.Steps[i]; void.Has(i) {", new: "if s := &t.Steps[i]; void.Has(i) && s.Status != StepDone {",
		fault: "what was approved stays approved after an edit",
		run:   "^TestEditVoidsAnswers$",
	},
	{
		name: "edit-keeps-an-early-approval", invariant: 5, file: "internal/core/asks.go",
		old: "s.kind != kindSignal || !s.Status.over() && !s.Own().Early {", new: "s.kind != kindSignal || !s.Status.over() {",
		fault: "an answer that came before its step stays after an edit",
		run:   "^TestEditVoidsAnswers$",
	},
	{
		name: "edit-keeps-what-was-skipped", invariant: 5, file: "internal/core/asks.go",
		old: "s.kind != kindSignal || !s.Status.over() && !s.Own().Early {", new: "s.kind != kindSignal || s.Status != StepDone && !s.Own().Early {",
		fault: "an edit from a small amount to a large one skips the approval",
		run:   "^TestEditAsksWhatWasSkipped$",
	},
	{
		name: "late-retry-is-a-fresh-key", invariant: 7, file: "internal/core/keylasts.go",
		old: "heard = cmp.Or(s.Since, born)", new: "_ = born",
		fault: "an owner that stood still takes a key for younger than it is, and uses it when its service has forgotten it",
		run:   "^TestLateRetryIsAsOldAsItsWait$",
	},
	{
		name: "full-agent-has-not-heard", invariant: 7, file: "internal/core/transition.go",
		old: "case r.Code != 0 || r.EffectsPossibleUntil != 0:", new: "case r.EffectsPossibleUntil < 0:",
		fault: "the key of an undo that an agent has heard is taken for unused",
		run:   "^TestUndoThatWasHeardKeepsItsAge$",
	},
	{
		name: "number-cut-to-a-double", invariant: 12, file: "internal/expr/value.go",
		old: "err == nil && decimal.Same(canon, plainDouble(f)) {", new: "err == nil {",
		fault: "an amount with more digits than a double has is rounded by an expression",
		run:   "^(TestNumbersPassUnchanged|TestExactNumbers)$",
	},
	{
		name: "literal-cut-to-a-double", invariant: 12, file: "internal/expr/arithmetic.go",
		old: "text != \"\" && !decimal.Same(text, plainDouble(float64(is)))", new: "text != \"\" && decimal.Same(text, plainDouble(float64(is))+\"1\")",
		fault: "a number in an expression is rounded",
		run:   "^TestLiteralsKeepTheirDigits$",
	},
	{
		name: "arithmetic-of-any-type", invariant: 12, file: "internal/expr/arithmetic.go",
		old: "if name := c.FunctionName(); calculates(e) || strings.HasPrefix", new: "if name := c.FunctionName(); strings.HasPrefix",
		fault: "an expression calculates with a value whose type the next task may not have",
		run:   "^TestArithmeticNeedsAType$",
	},
	{
		name: "decimal-place-lost", invariant: 12, file: "internal/decimal/decimal.go",
		old: "\tpoint -= len(digits) - len(significant)\n", new: "",
		fault: "a number that begins with zeros has another value in its one spelling",
		run:   "^(TestCanon|TestCanonKeepsTheValue)$",
	},
	{
		name: "file-order-lost", invariant: 12, file: "internal/planfile/order.go",
		old: "case i > 0 && read[before].Name != \"\": // as written, before they are sorted", new: "case i > 1 && read[before].Name != \"\":",
		fault: "the second step of a file begins with the first: the charge is beside the check before it",
		run:   "^(TestOrder|TestGuide|TestRoundTrip)$",
	},
	{
		name: "silent-step-begins-at-once", invariant: 12, file: "internal/planform/planform.go",
		old: "\t\tstep.After = []int{r.step - 1}\n", new: "\t\tstep.After = nil\n",
		fault: "a step of a JSON plan that does not say what it comes after begins with the others",
		run:   "^(TestCanonical|TestKindsRoundTrip|TestKindsCanonical|TestStoredPlansKeepTheirHash)$",
	},
	{
		name: "missing-key-spends-attempts", invariant: 12, file: "call.go",
		old: "agents.Error{Code: core.CodeUnable, Err: err}", new: "agents.Error{Code: core.CodeAgentError, Err: err}",
		fault: "a task is undone because an instance of an agent does not have the newest key yet",
		run:   "^TestAgentWithACodec$",
	},
}

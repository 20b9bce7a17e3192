package operate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/say"
)

// PatchBytesMax bounds the patch of an edit of many tasks.
const PatchBytesMax = 64 << 10

// reasoned are the actions that need a reason: something is destroyed, or a person's word counts as a result.
var reasoned = []Action{ActionUndo, ActionResolve, ActionAccept, ActionEdit, ActionMigrate}

// Check refuses a request that is wrong in itself, whatever the task's state: an action that there is not, a field that
// the action lacks or does not take, a value out of its bounds. It is the one place for that: every face answers what it
// says. The reason may be absent: what begins an operation has one of its own.
func (r *Request) Check(now time.Time) *Refusal {
	if !slices.Contains(allActions, r.Action) {
		return wrong("action", "action is %s, want cancel, undo, resubmit, edit, accept, resolve, extend, migrate or signal", core.QuoteShort(string(r.Action)))
	}
	if r.IfSeq < 0 {
		return wrong("if_seq", "if_seq is %d, want 0 or more", r.IfSeq)
	}
	if bad := CheckReason(r.Reason); bad != nil {
		return bad
	}
	for _, check := range []func(time.Time) *Refusal{r.checkStep, r.checkUntil, r.checkAs, r.checkFound, r.checkInput, r.checkResult, r.checkVersion, r.checkAsk} {
		if bad := check(now); bad != nil {
			return bad
		}
	}
	return nil
}

// CheckOne is Check of a request about one task: it says why where that is needed, and gives an input instead of a patch.
func (r *Request) CheckOne(now time.Time) *Refusal {
	if bad := r.Check(now); bad != nil {
		return bad
	}
	if slices.Contains(reasoned, r.Action) && strings.TrimSpace(r.Reason) == "" {
		return wrong("reason", "%s", say.Of("refuse.no-reason", "action", r.Action))
	}
	if len(r.Patch) > 0 {
		return wrong("patch", "%s", say.Of("refuse.patch-one"))
	}
	return nil
}

// CheckOperator refuses who may read only; what names what was wanted.
func CheckOperator(by Actor, what string) *Refusal {
	if by.Role.May(RoleOperator) {
		return nil
	}
	return &Refusal{Code: 403, Detail: say.Of("refuse.role-reads", "role", core.QuoteShort(string(by.Role)), "what", what, "needs", RoleOperator)}
}

// CleanText is a text as every store takes it: UTF-8 without NUL.
func CleanText(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// CheckReason holds a reason to the rule for a person's words; none is well.
func CheckReason(reason string) *Refusal {
	if err := core.CheckWords("reason", reason); err != nil {
		return wrong("reason", "%v", err)
	}
	return nil
}

// wrong refuses a field.
func wrong(field, format string, args ...any) *Refusal {
	return &Refusal{Code: 400, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// misplaced refuses a field that another action takes.
func misplaced(field string, action Action) *Refusal {
	return wrong(field, "%s takes no %s", action, field)
}

func (r *Request) checkFound(time.Time) *Refusal {
	switch {
	case r.Found == "":
		return nil
	case !slices.Contains([]Action{ActionUndo, ActionResubmit, ActionEdit}, r.Action):
		return misplaced("found", r.Action)
	case r.Found != core.ProbeDone && r.Found != core.ProbeAbsent:
		return wrong("found", "found is %s, want done or absent", core.QuoteShort(string(r.Found)))
	}
	return nil
}

func (r *Request) checkStep(time.Time) *Refusal {
	if r.Step == "" {
		if r.Action == ActionSignal {
			return wrong("step", "%s", say.Of("refuse.signal-step"))
		}
		return nil
	}
	if !slices.Contains([]Action{ActionResubmit, ActionEdit, ActionAccept, ActionUndo, ActionSignal}, r.Action) {
		return misplaced("step", r.Action)
	}
	if err := core.CheckName("step", r.Step); err != nil {
		return wrong("step", "%v", err)
	}
	return nil
}

func (r *Request) checkUntil(now time.Time) *Refusal {
	switch {
	case r.Action == ActionExtend && r.Until.IsZero():
		return wrong("until", "%s", say.Of("refuse.extend-until"))
	case r.Until.IsZero():
		return nil
	case !slices.Contains([]Action{ActionExtend, ActionResubmit, ActionEdit, ActionAccept}, r.Action):
		return misplaced("until", r.Action)
	case !r.Until.After(now) || r.Until.After(now.Add(core.DurationMax)):
		return wrong("until", "until is %s, want a time after now and at most %v from now", r.Until.UTC().Format(time.RFC3339), core.DurationMax)
	}
	return nil
}

func (r *Request) checkAs(time.Time) *Refusal {
	switch {
	case r.Action != ActionResolve && r.As != "":
		return misplaced("as", r.Action)
	case r.Action == ActionResolve && r.As != core.StateProcessed && r.As != core.StateUndone:
		return wrong("as", "as is %s, want processed or undone", core.QuoteShort(string(r.As)))
	}
	return nil
}

// checkInput holds an edit to an input or a patch.
func (r *Request) checkInput(time.Time) *Refusal {
	switch {
	case len(r.Patch) == 0:
		return checkJSON("input", r.Input, r.Action, ActionEdit, core.InputBytesMax)
	case r.Action != ActionEdit:
		return misplaced("patch", r.Action)
	case len(r.Input) > 0:
		return wrong("patch", "an input and a patch are given, want one of them")
	}
	return checkJSON("patch", r.Patch, r.Action, ActionEdit, PatchBytesMax)
}

func (r *Request) checkVersion(time.Time) *Refusal {
	switch {
	case r.Action != ActionMigrate && r.Version != 0:
		return misplaced("version", r.Action)
	case r.Action == ActionMigrate && r.Version < 1:
		return wrong("version", "version is %d, want the one to go on by, 1 or more", r.Version)
	}
	return nil
}

func (r *Request) checkAsk(time.Time) *Refusal {
	if r.Action != ActionSignal && r.Ask != "" {
		return misplaced("ask", r.Action)
	}
	if err := core.CheckAsk(r.Ask); err != nil {
		return wrong("ask", "%v", err)
	}
	return nil
}

func (r *Request) checkResult(time.Time) *Refusal {
	if r.Action != ActionSignal {
		return checkJSON("result", r.Result, r.Action, ActionAccept, core.ResultBytesMax)
	}
	if len(r.Result) > 0 {
		return checkJSON("result", r.Result, r.Action, ActionSignal, core.ResultBytesMax)
	}
	if strings.TrimSpace(r.Reason) == "" {
		return wrong("result", "%s", say.Of("refuse.signal-result"))
	}
	return nil
}

// checkJSON holds a field of one action to JSON within its limit.
func checkJSON(field string, data []byte, action, of Action, most int) *Refusal {
	switch n := len(data); {
	case action != of && n > 0:
		return misplaced(field, action)
	case action != of:
		return nil
	case n > most:
		return &Refusal{Code: 413, Field: field, Detail: say.Of("refuse.field-size", "field", field, "bytes", n, "limit", most)}
	}
	if err := quickjson.Check(field, data); err != nil {
		return wrong(field, "%v", err)
	}
	return nil
}

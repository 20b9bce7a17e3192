package operate

import (
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// What may be asked now: every door offers what this file says, and refuses by it.

// Possible are the actions that a reader may ask of a task as it is: those that its owner would take and the role allows.
func Possible(by Actor, v *core.View) (all []Action) {
	for _, word := range v.Possible {
		if by.Role.May(RoleOperator) || word == string(ActionCancel) && by.Role.May(RoleClient) {
			all = append(all, Action(word))
		}
	}
	return all
}

// WhyNot says why a reader may not ask an action of a task as it is; empty: they may.
func WhyNot(by Actor, v *core.View, a Action) string {
	possible := Possible(by, v)
	switch {
	case slices.Contains(possible, a):
		return ""
	case !by.Role.May(RoleOperator):
		return WhyNotRole(by, RoleOperator)
	case len(possible) == 0:
		return say.Of("act.nothing", "state", v.State)
	}
	names := make([]string, len(possible))
	for i := range possible {
		names[i] = string(possible[i])
	}
	return say.Of("act.possible", "state", v.State, "actions", strings.Join(names, ", "))
}

// WhyNotRole says why an actor may not do what needs a role; empty: they may.
func WhyNotRole(by Actor, needs Role) string {
	if by.Role.May(needs) {
		return ""
	}
	return say.Of("problem.role", "role", by.Role, "needed", needs)
}

// Changes of an operation, as the audit trail calls them.
const (
	ChangePause  = "pause"
	ChangeResume = "resume"
	ChangeRate   = "rate"
	ChangeStop   = "stop"
)

// Takes reports whether an operation in a state takes a change.
func (s OperationState) Takes(change string) bool {
	switch change {
	case ChangePause:
		return s == OperationRunning
	case ChangeResume:
		return s == OperationPaused || s == OperationBraked
	}
	return s == OperationRunning || s == OperationPaused || s == OperationBraked
}

// Takes reports whether the breaker of an agent takes a wish: only one that is forced is let go.
func (b *Breaker) Takes(wish BreakerWish) bool { return wish != BreakerAuto || b.Forced }

package repair

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// kinds are the actions that may be asked of many tasks at once, and the events that owners know them by.
var kinds = map[operate.Action]core.EventKind{
	operate.ActionUndo:     core.EventUndo,
	operate.ActionResubmit: core.EventResubmit,
	operate.ActionEdit:     core.EventEdit,
	operate.ActionAccept:   core.EventAccept,
	operate.ActionResolve:  core.EventResolve,
	operate.ActionMigrate:  core.EventMigrate,
}

// control is the message that asks for the action, still without members.
func control(op *operate.Operation) core.Control {
	r := &op.Request
	return core.Control{
		Kind: kinds[op.Action], Actor: operate.OperationActor(op.ID), Reason: op.Reason, Step: r.Step, Until: until(r), As: r.As,
		Input: r.Input, Result: r.Result, Found: r.Found, Asked: created(op), Version: r.Version,
	}
}

// guarded reports whether a member is asked about the journal row that it was frozen at. A task that is to be moved to
// another version of its plan runs, so that it leaves its row; its owner decides where it is, and once only.
func guarded(action operate.Action) bool { return action != operate.ActionMigrate }

// event is what the owner will make of the message about one member.
func event(op *operate.Operation, m *operate.Member, at core.Instant) core.Event {
	r := &op.Request
	ev := core.Event{
		Kind: kinds[op.Action], At: at, Rand: 0.5, Actor: operate.OperationActor(op.ID), Reason: op.Reason, Step: r.Step, Until: until(r), As: r.As,
		Input: r.Input, Result: r.Result, Found: r.Found, Looked: created(op), Version: r.Version,
	}
	if guarded(op.Action) {
		ev.IfSeq = m.Seq
	}
	return ev
}

// created is when someone asked for it, and had looked at what it is about; 0: it is not stored yet.
func created(op *operate.Operation) core.Instant {
	if op.Created.IsZero() {
		return 0
	}
	return core.InstantOf(op.Created)
}

func until(r *operate.Request) core.Instant {
	if r.Until.IsZero() {
		return 0
	}
	return core.InstantOf(r.Until)
}

// checkRequest refuses what cannot be asked of any task, and returns the patch of an edit that has one.
func checkRequest(r *operate.Request, now time.Time) (*patch, error) {
	if _, many := kinds[r.Action]; !many {
		return nil, bad("action", "%s", say.Of("refuse.action-many", "action", core.QuoteShort(string(r.Action)), "possible", possible()))
	}
	if refusal := r.Check(now); refusal != nil {
		return nil, refusal
	}
	if r.IfSeq != 0 {
		return nil, bad("if_seq", "%s", say.Of("refuse.if-seq-many"))
	}
	if r.Action == operate.ActionUndo && r.Step != "" {
		return nil, bad("step", "%s", say.Of("refuse.undo-step-many", "step", core.QuoteShort(r.Step)))
	}
	return readPatch(r.Patch)
}

func possible() string {
	var words []string
	for action := range kinds {
		words = append(words, string(action))
	}
	slices.Sort(words)
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func bad(field, format string, a ...any) *operate.Refusal {
	return &operate.Refusal{Code: 400, Field: field, Detail: fmt.Sprintf(format, a...)}
}

func refuse(code int, format string, a ...any) *operate.Refusal {
	return &operate.Refusal{Code: code, Detail: fmt.Sprintf(format, a...)}
}

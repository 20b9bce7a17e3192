package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/seal"
)

// Actions carries out what operators ask of single tasks, for every face: it writes the audit entry, then asks the
// task's owner. It is safe for concurrent use.
type Actions struct{ asks *Requests }

var _ operate.Actions = (*Actions)(nil)

// NewActions makes it.
func NewActions(asks *Requests) *Actions { return &Actions{asks} }

// before and after are what the audit trail keeps of a request: how the task was, and what is asked. An input and a
// result are in the journal; the trail names them by size and hash.
type (
	beforeJSON struct {
		State core.State `json:"state"`
		Seq   int64      `json:"seq"`
	}
	afterJSON struct {
		Action      operate.Action    `json:"action"`
		Step        string            `json:"step,omitempty"`
		Until       time.Time         `json:"until,omitzero"`
		As          core.State        `json:"as,omitempty"`
		Found       core.ProbeOutcome `json:"found,omitempty"`
		Ask         string            `json:"ask,omitempty"`
		IfSeq       int64             `json:"if_seq,omitempty"`
		InputBytes  int               `json:"input_bytes,omitempty"`
		InputHash   string            `json:"input_sha256,omitempty"`
		ResultBytes int               `json:"result_bytes,omitempty"`
		ResultHash  string            `json:"result_sha256,omitempty"`
		Version     int64             `json:"version,omitempty"`
	}
)

// Do implements [operate.Actions]. A key that was used for the same action on the same task answers what became of it;
// only where that is not known the task's owner is asked again, about the same journal row, so that nothing happens
// twice. Error: *operate.Refusal.
func (a *Actions) Do(ctx context.Context, by operate.Actor, task operate.TaskRef, r operate.Request) (operate.Answer, error) {
	answer := operate.Answer{Type: task.Type, ID: task.ID, Action: r.Action}
	act := actOf(by, task, &r)
	if bad := a.check(by, task, &r); bad != nil {
		err := a.asks.cfg.Desk.Note(ctx, act, bad)
		answer.Audit = act.Number
		return answer, err
	}
	control := controlOf(by, task, &r)
	partition := a.asks.cfg.PartitionOf(task.ID, a.asks.cfg.Partitions)
	view, unseen := a.see(ctx, &control, partition)
	if unseen == nil {
		act.Before = beforeJSON{view.State, view.Seq}
		answer.State = view.State
	}
	err := a.asks.cfg.Desk.Ask(ctx, act, func(ctx context.Context) (string, error) {
		if unseen != nil {
			return "", asRefusal(unseen)
		}
		before := view.Seq
		if act.Again != nil {
			control.Asked = core.InstantOf(act.Again.At)
			if before = seqOf(act.Again.Before, before); guarded(r.Action, view.State) && before != view.Seq {
				answer.Outcome = say.Of("ask.again")
				return "", nil
			}
		}
		if control.IfSeq == 0 && guarded(r.Action, view.State) {
			control.IfSeq = before
		}
		outcome, bad := a.asks.decide(ctx, &control, &view)
		if bad != nil && !bad.Retryable() && act.Again != nil && before != view.Seq { // it may be what was asked first that forbids it now
			answer.Outcome = say.Of("ask.again")
			return "", nil
		}
		var position uint64
		if bad == nil {
			position, bad = a.asks.store(ctx, &control, partition)
		}
		if bad != nil {
			refusal := asRefusal(bad)
			if bad.Code == 409 || bad.Code == 428 {
				refusal.Possible = operate.Possible(by, &view)
			}
			return "", refusal
		}
		answer.Outcome, answer.Position = outcome, placeOf(partition, position)
		return answer.Position, nil
	})
	answer.Audit = act.Number
	if again := act.Again; again != nil {
		answer.Again, answer.Audit = true, again.Number
		if partition, position, asked := again.Place(); asked {
			answer.Outcome, answer.Position = operate.Asked+say.Of("ask.unanswered"), placeOf(partition, position)
		} else if answer.Outcome == "" {
			answer.Outcome = again.Outcome
		}
	}
	return answer, err
}

// sealed refuses to put a payload that anyone can read beside those of a task that are encrypted.
func sealed(r *operate.Request, view *core.View) *ingest.Refusal {
	field, payload := "input", r.Input
	if r.Action == operate.ActionAccept || r.Action == operate.ActionSignal {
		field, payload = "result", r.Result
	}
	was, is := seal.Of(view.Input)
	if !is || len(payload) == 0 {
		return nil
	}
	if _, encrypted := seal.Of(payload); encrypted {
		return nil
	}
	command := "task " + string(r.Action)
	if r.Action == operate.ActionSignal {
		command = "signal"
	}
	return ingest.Refuse(422, ingest.CauseBody, "%s", say.Of("refuse.not-encrypted", "field", field, "id", core.QuoteShort(view.ID), "key", core.QuoteShort(was.Key), "command", command))
}

// guarded reports whether a request is about the journal row that its sender saw: a task at rest moves only when it is
// asked to, and a request that is read again after a crash must find that it has moved.
func guarded(action operate.Action, state core.State) bool {
	return state.Ended() && action != operate.ActionCancel && action != operate.ActionExtend
}

// see reads the task that a request is about.
func (a *Actions) see(ctx context.Context, c *core.Control, partition int) (core.View, *ingest.Refusal) {
	view, err := a.asks.look(ctx, c, partition)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return view, a.asks.unknown(ctx, c)
	case err != nil:
		return view, a.asks.unread(c, err)
	case view.Type != c.Type:
		return view, otherType(c, &view)
	}
	return view, nil
}

// actOf is what the audit trail keeps of a request, bounded whatever the request holds.
func actOf(by operate.Actor, task operate.TaskRef, r *operate.Request) *operate.Act {
	after := afterJSON{
		Action: operate.Action(core.NameOf(string(r.Action), core.NameBytesMax)), Step: core.NameOf(r.Step, core.NameBytesMax), Until: r.Until,
		As: core.State(core.NameOf(string(r.As), core.NameBytesMax)), Found: core.ProbeOutcome(core.NameOf(string(r.Found), core.NameBytesMax)), Ask: core.NameOf(r.Ask, core.AskBytesMax), IfSeq: r.IfSeq, InputBytes: len(r.Input), InputHash: hashOf(r.Input),
		ResultBytes: len(r.Result), ResultHash: hashOf(r.Result), Version: r.Version,
	}
	if y := after.Until.Year(); y < 0 || y > 9999 { // which JSON cannot say
		after.Until = time.Time{}
	}
	return &operate.Act{By: by, Action: string(after.Action), Target: "task/" + core.NameOf(task.Type, core.NameBytesMax) + "/" + core.NameOf(task.ID, core.NameBytesMax),
		Reason: r.Reason, Key: r.Key, After: after, Same: func(again *operate.AuditEntry) bool { return sameContent(again.After, &after) }}
}

func hashOf(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// sameContent reports whether two requests of one key ask for the same. Deadlines may differ: who says "in an hour" and
// sends it again says another one.
func sameContent(was json.RawMessage, b *afterJSON) bool {
	var a afterJSON
	return json.Unmarshal(was, &a) == nil && a.Step == b.Step && a.As == b.As && a.Found == b.Found && a.Ask == b.Ask && a.InputHash == b.InputHash && a.ResultHash == b.ResultHash && a.Version == b.Version
}

// seqOf is the journal row that an entry saw its task at; unknown where it did not see it, so that it asked nothing.
func seqOf(before json.RawMessage, unknown int64) int64 {
	var b beforeJSON
	if json.Unmarshal(before, &b) != nil || b.Seq == 0 {
		return unknown
	}
	return b.Seq
}

// controlOf is the request as the task's owner gets it.
func controlOf(by operate.Actor, task operate.TaskRef, r *operate.Request) core.Control {
	c := core.Control{
		Kind: kinds[r.Action], ID: task.ID, Type: task.Type, Actor: ActorAt(by.Name, by.Via), Reason: r.Reason, Step: r.Step,
		As: r.As, Found: r.Found, IfSeq: r.IfSeq, Input: r.Input, Result: r.Result, Version: r.Version, Ask: r.Ask,
	}
	if !r.Until.IsZero() {
		c.Until = core.InstantOf(r.Until)
	}
	return c
}

// kinds are the events of the actions.
var kinds = map[operate.Action]core.EventKind{
	operate.ActionCancel: core.EventCancel, operate.ActionUndo: core.EventUndo, operate.ActionResubmit: core.EventResubmit,
	operate.ActionEdit: core.EventEdit, operate.ActionAccept: core.EventAccept, operate.ActionResolve: core.EventResolve,
	operate.ActionExtend: core.EventExtend, operate.ActionMigrate: core.EventMigrate,
	operate.ActionSignal: core.EventSignal,
}

// IsAction reports whether the audit trail calls a request to the owner of a task so.
func IsAction(action string) bool { return kinds[operate.Action(action)] != 0 }

// check refuses a request that is wrong in itself, whatever the task's state.
func (a *Actions) check(by operate.Actor, task operate.TaskRef, r *operate.Request) *operate.Refusal {
	if bad := operate.CheckOperator(by, core.QuoteShort(string(r.Action))); bad != nil {
		return bad
	}
	if bad := ingest.CheckTask(task.Type, task.ID); bad != nil {
		return asRefusal(bad)
	}
	if len(r.Key) > keyBytesMax || !core.PlainText(r.Key) {
		return &operate.Refusal{Code: 400, Field: "Idempotency-Key", Detail: fmt.Sprintf("key %s has %d bytes, want at most %d of text without control characters", core.QuoteShort(r.Key), len(r.Key), keyBytesMax)}
	}
	return r.CheckOne(a.asks.cfg.Now())
}

// asRefusal is a refusal of the doors as the faces show it.
func asRefusal(bad *ingest.Refusal) *operate.Refusal {
	return &operate.Refusal{Code: bad.Code, Cause: bad.ErrCode, Detail: bad.Description, RetryMS: bad.Retry.Milliseconds()}
}

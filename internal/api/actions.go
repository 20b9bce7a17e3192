package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/seal"
)

// Actions carries out what operators ask of single tasks, for every face: it writes the audit entry, then asks the
// task's owner. It is safe for concurrent use.
type Actions struct {
	asks  *Requests
	trail operate.Trail
	now   func() time.Time
}

var _ operate.Actions = (*Actions)(nil)

// Outcomes of an audit entry. One without an outcome is of a request of which it is not known whether the task's owner
// was asked: the same key asks again.
const (
	outcomeFailed = "failed: "
)

// NewActions makes it. Error: a part is missing.
func NewActions(asks *Requests, trail operate.Trail) (*Actions, error) {
	if asks == nil || trail == nil {
		return nil, errors.New("api: actions on tasks need requests and an audit trail")
	}
	return &Actions{asks: asks, trail: trail, now: time.Now}, nil
}

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
	entry := entryOf(ctx, a.now(), by, task, &r)
	if bad := a.check(by, task, &r); bad != nil {
		entry.Key = "" // what is wrong in itself uses up no key
		return answer, a.refuse(ctx, entry, bad, &answer)
	}
	control := controlOf(by, task, &r)
	partition := a.asks.cfg.PartitionOf(task.ID, a.asks.cfg.Partitions)
	view, unseen := a.see(ctx, &control, partition)
	if unseen == nil {
		entry.Before = mustJSON(beforeJSON{view.State, view.Seq})
		answer.State = view.State
	}
	number, again, err := a.trail.Append(ctx, entry)
	if err != nil {
		return answer, a.trailDown(task, err)
	}
	answer.Audit = number
	before := view.Seq
	if again != nil {
		answer.Again, answer.Audit = true, again.Number
		if again.Action != entry.Action || again.Target != entry.Target {
			return answer, operate.KeyTaken(r.Key, again)
		}
		if !sameContent(again.After, entry.After) {
			return answer, &operate.Refusal{Code: 422, Field: "Idempotency-Key", Detail: fmt.Sprintf("key %s was used for %s of %s with another step, input, result or end already", core.QuoteShort(r.Key), again.Action, again.Target)}
		}
		if again.Outcome != "" {
			return answered(answer, again)
		}
		before = seqOf(again.Before, view.Seq)
	}
	if unseen != nil {
		return answer, a.settle(ctx, answer.Audit, &r, asRefusal(unseen, nil))
	}
	if answer.Again && guarded(r.Action, view.State) && before != view.Seq {
		answer.Outcome = "it had been asked, or the task has changed since; nothing was asked again"
		a.outcome(ctx, answer.Audit, outcomeAsked)
		return answer, nil
	}
	if control.IfSeq == 0 && guarded(r.Action, view.State) {
		control.IfSeq = before
	}
	outcome, bad := a.asks.decide(ctx, &control, &view)
	if bad == nil {
		bad = sealed(&r, &view)
	}
	if bad == nil {
		var position uint64
		if position, bad = a.asks.store(ctx, &control, partition); bad == nil {
			answer.Outcome, answer.Position = outcome, fmt.Sprintf("%d.%d", partition, position)
			a.outcome(ctx, answer.Audit, outcomeAsked)
			return answer, nil
		}
	}
	return answer, a.settle(ctx, answer.Audit, &r, asRefusal(bad, &view))
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
	return ingest.Refuse(422, ingest.CauseBody, "%s is not encrypted, and the input of %s is, with key %s: duly %s --payload-keys encrypts it", field, core.QuoteShort(view.ID), core.QuoteShort(was.Key), command)
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

// entryOf is the audit entry of a request, bounded whatever the request holds.
func entryOf(ctx context.Context, now time.Time, by operate.Actor, task operate.TaskRef, r *operate.Request) operate.AuditEntry {
	after := afterJSON{
		Action: operate.Action(core.NameOf(string(r.Action), core.NameBytesMax)), Step: core.NameOf(r.Step, core.NameBytesMax), Until: r.Until,
		As: core.State(core.NameOf(string(r.As), core.NameBytesMax)), Found: core.ProbeOutcome(core.NameOf(string(r.Found), core.NameBytesMax)), Ask: core.NameOf(r.Ask, core.AskBytesMax), IfSeq: r.IfSeq, InputBytes: len(r.Input), InputHash: hashOf(r.Input),
		ResultBytes: len(r.Result), ResultHash: hashOf(r.Result), Version: r.Version,
	}
	if y := after.Until.Year(); y < 0 || y > 9999 { // which JSON cannot say
		after.Until = time.Time{}
	}
	return operate.AuditEntry{
		At: now, Request: operate.RequestFrom(ctx), Actor: by.Name, Role: by.Role, From: by.From, Via: by.Via, Action: string(after.Action),
		Target: "task/" + core.NameOf(task.Type, core.NameBytesMax) + "/" + core.NameOf(task.ID, core.NameBytesMax),
		Reason: cleanText(r.Reason, core.WordsBytesMax), After: mustJSON(after), Key: cleanText(r.Key, keyBytesMax),
	}
}

// cleanText is a text as every store takes it, cut.
func cleanText(text string, bytesMax int) string {
	return core.CutText(operate.CleanText(text), bytesMax)
}

func hashOf(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// mustJSON is for bodies of strings, numbers and times that JSON can say.
func mustJSON(body any) json.RawMessage {
	data, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return data
}

// sameContent reports whether two requests of one key ask for the same. Deadlines may differ: who says "in an hour" and
// sends it again says another one.
func sameContent(was, now json.RawMessage) bool {
	var a, b afterJSON
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(now, &b) != nil {
		return false
	}
	return a.Step == b.Step && a.As == b.As && a.Found == b.Found && a.Ask == b.Ask && a.InputHash == b.InputHash && a.ResultHash == b.ResultHash && a.Version == b.Version
}

// seqOf is the journal row that an entry saw its task at; unknown where it did not see it, so that it asked nothing.
func seqOf(before json.RawMessage, unknown int64) int64 {
	var b beforeJSON
	if json.Unmarshal(before, &b) != nil || b.Seq == 0 {
		return unknown
	}
	return b.Seq
}

// answered is the answer to a key that was used before.
func answered(answer operate.Answer, again *operate.AuditEntry) (operate.Answer, error) {
	answer.Outcome = again.Outcome
	if why, refused := strings.CutPrefix(again.Outcome, outcomeDenied); refused {
		return answer, &operate.Refusal{Code: 409, Detail: "the same request was refused before: " + why}
	}
	return answer, nil
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

// check refuses a request that is wrong in itself, whatever the task's state.
func (a *Actions) check(by operate.Actor, task operate.TaskRef, r *operate.Request) *operate.Refusal {
	if bad := operate.CheckOperator(by, core.QuoteShort(string(r.Action))); bad != nil {
		return bad
	}
	if bad := ingest.CheckTask(task.Type, task.ID); bad != nil {
		return asRefusal(bad, nil)
	}
	if len(r.Key) > keyBytesMax || !core.PlainText(r.Key) {
		return &operate.Refusal{Code: 400, Field: "Idempotency-Key", Detail: fmt.Sprintf("key %s has %d bytes, want at most %d of text without control characters", core.QuoteShort(r.Key), len(r.Key), keyBytesMax)}
	}
	return r.CheckOne(a.now())
}

// asRefusal is a refusal of the doors as the faces show it; the view, if there is one, says what is possible.
func asRefusal(bad *ingest.Refusal, view *core.View) *operate.Refusal {
	r := &operate.Refusal{Code: bad.Code, Detail: bad.Description, RetryMS: bad.Retry.Milliseconds()}
	if view != nil && bad.Code == 409 {
		for _, word := range view.Possible {
			r.Possible = append(r.Possible, operate.Action(word))
		}
	}
	return r
}

// refuse writes the entry of a request that is refused as it stands, and returns the refusal.
func (a *Actions) refuse(ctx context.Context, e operate.AuditEntry, bad *operate.Refusal, answer *operate.Answer) error {
	number, _, err := a.trail.Append(ctx, e)
	if err != nil {
		a.asks.log.Warn("a refused request is not in the audit trail", "target", e.Target, "action", e.Action, "error", err)
		return bad
	}
	answer.Audit = number
	a.outcome(ctx, number, outcomeDenied+bad.Detail)
	return bad
}

// settle adds to an entry that its request was not carried out, and returns the refusal. What may be stored all the
// same, or may be asked again by the same key, stays open.
func (a *Actions) settle(ctx context.Context, number int64, r *operate.Request, bad *operate.Refusal) error {
	switch {
	case bad.RetryMS == 0:
		a.outcome(ctx, number, outcomeDenied+bad.Detail)
	case r.Key == "":
		a.outcome(ctx, number, outcomeFailed+bad.Detail)
	}
	return bad
}

// outcome adds what became of an entry. The request's own context may have ended: what was done is noted all the same.
func (a *Actions) outcome(ctx context.Context, number int64, text string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), a.asks.cfg.ControlMax)
	defer stop()
	if err := a.trail.SetOutcome(ctx, number, text); err != nil {
		a.asks.log.Warn("the audit trail has no outcome of a request", "entry", number, "outcome", text, "error", err)
	}
}

// trailDown refuses a request that cannot be written down.
func (a *Actions) trailDown(task operate.TaskRef, err error) *operate.Refusal {
	a.asks.log.Warn("a request is not carried out, because the audit trail cannot be written", "task", task.ID, "error", err)
	return &operate.Refusal{Code: 503, Detail: "the audit trail could not be written, so nothing was asked; ask again", RetryMS: ingest.RetryLog.Milliseconds()}
}

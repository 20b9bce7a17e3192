package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// The bounds of what goes on whether or not its client still waits.
const (
	DeskMax   = 30 * time.Second // of a change, and of asking an owner
	deskTrail = 5 * time.Second  // of writing an entry, and its outcome
)

// The bounds of refusals by role that are written down; more are only logged.
const (
	refusedEach      = 10 * time.Second // of one actor, after
	refusedEachBurst = 50
	refusedAll       = time.Second / 10 // of all, after
	refusedAllBurst  = 200
	refusedTargetMax = 200 // bytes
)

// Outcomes of entries, beside [Asked] with the place of a request in its owner's stream. An entry that says asked and no more,
// or nothing, has none yet: [Desk.Settle] gives it one.
const (
	outcomeOpen    = "asked"
	outcomeDone    = "done"
	outcomeRefused = "refused: " // a rule, or the owner, has said no
	outcomeFailed  = "failed: "  // nothing was changed
)

// Act is what is written down of a change: who makes it, what it is, and why.
type Act struct {
	By                     Actor // empty: whose request it is
	Action, Target, Reason string
	// Key is the Idempotency-Key; empty: none. What fails without a refusal, or with one that may be asked again, has no outcome
	// then, so that it can be asked again by the key, until [Desk.Settle] gives it one.
	Key           string
	Before, After any // as JSON
	// Away is of what is changed elsewhere than in the state store: whether it was, when do fails so, is for Settle to look.
	Away bool
	// Same says whether the entry that has the key already asks for the same; nil: action and target say it.
	Same func(*AuditEntry) bool

	Number int64       // of the entry, once it is written
	Again  *AuditEntry // the entry that has the key; nil: this is the first
}

// Desk is the only writer of the audit trail. An entry is written before what it tells is done; what is done then, and its
// outcome, do not end with the client. It is safe for concurrent use.
type Desk struct {
	trail TrailWriter
	now   func() time.Time
	log   *slog.Logger
	each  *Buckets
	all   *rate.Limiter
}

// NewDesk makes it.
func NewDesk(trail TrailWriter, now func() time.Time, log *slog.Logger) *Desk {
	return &Desk{trail, now, log, NewBuckets(refusedEach, refusedEachBurst), rate.NewLimiter(rate.Every(refusedAll), refusedAllBurst)}
}

// Change writes down what this process changes, and has do change it. A state store that is written to with do's context
// stores the outcome with the change; the error is nil where that has happened, whatever do says. Of a key whose entry has
// an outcome nothing is done again.
func (d *Desk) Change(ctx context.Context, a *Act, do func(context.Context) error) error {
	if over, err := d.begin(ctx, a, outcomeOpen); over {
		return err
	}
	change := &Entry{Number: a.Number}
	bounded, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(ctx), entryKey{}, change), DeskMax)
	defer cancel()
	err := do(bounded)
	if bad, refused := errors.AsType[*Refusal](err); err == nil && change.Done || err != nil && (a.Away || a.Key != "") && (!refused || bad.RetryMS > 0) {
		return err
	}
	if d.end(ctx, a, outcomeOf(err)) == outcomeDone {
		return nil
	}
	return err
}

// Ask writes down what an owner answers later, and has send ask for it. send returns where the request is stored, as
// <partition>.<position>; nothing: it need not be asked. What may be stored although send failed has no outcome yet.
func (d *Desk) Ask(ctx context.Context, a *Act, send func(context.Context) (position string, err error)) error {
	if over, err := d.begin(ctx, a, ""); over {
		return err
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), DeskMax)
	defer cancel()
	position, err := send(bounded)
	bad, refused := errors.AsType[*Refusal](err)
	switch {
	case position != "":
		d.end(ctx, a, Asked+position)
	case refused && bad.RetryMS == 0:
		d.end(ctx, a, outcomeOf(err))
	}
	return err
}

// Note writes down what is over: a refusal, which it returns, or what was done without a client. What is refused uses up no
// key. Refusals by role are bounded.
func (d *Desk) Note(ctx context.Context, a *Act, bad *Refusal) error {
	if bad == nil {
		return d.append(ctx, a, outcomeDone)
	}
	a.Key = ""
	if bad.Code == 403 {
		a.Target = core.ShortText(a.Target, refusedTargetMax)
		if by, now := a.by(ctx), d.now(); !d.each.Allow(now, string(by.Role)+" "+by.Name) || !d.all.AllowN(now, 1) {
			d.log.Warn("a change was refused", "actor", by.Name, "role", by.Role, "from", by.From, "action", a.Action)
			return bad
		}
	}
	_ = d.append(ctx, a, outcomeOf(bad)) // it is logged, and refused all the same
	return bad
}

func (a *Act) by(ctx context.Context) Actor {
	if a.By == (Actor{}) {
		a.By, _ = ActorFrom(ctx)
	}
	return a.By
}

// begin writes the entry; over: another has its key, and says what became of it.
func (d *Desk) begin(ctx context.Context, a *Act, outcome string) (over bool, err error) {
	if err := d.append(ctx, a, outcome); err != nil {
		return true, err
	}
	again := a.Again
	switch {
	case again == nil:
		return false, nil
	case again.Action != a.Action || again.Target != a.Target:
		return true, keyTaken(a.Key, "key %s was used for %s of %s already", again)
	case a.Same != nil && !a.Same(again):
		return true, keyTaken(a.Key, "key %s was used for %s of %s with another step, input, result or end already", again)
	case again.Outcome == "" || again.Outcome == outcomeOpen: // it is done again, or asked about the same journal row
		if d.now().Before(again.At.Add(settleKeyAfter - settleAfter)) {
			return false, nil
		}
		return true, &Refusal{Code: 503, Detail: say.Of("refuse.looked-up"), RetryMS: settleAfter.Milliseconds()}
	case strings.HasPrefix(again.Outcome, outcomeRefused), strings.HasPrefix(again.Outcome, outcomeFailed):
		return true, &Refusal{Code: 409, Detail: say.Of("refuse.answered", "outcome", again.Outcome)}
	}
	return true, nil
}

// keyTaken refuses an Idempotency-Key that was used for something else.
func keyTaken(key, format string, by *AuditEntry) *Refusal {
	return &Refusal{Code: 422, Field: "Idempotency-Key", Detail: fmt.Sprintf(format, core.QuoteShort(key), by.Action, by.Target)}
}

// append writes an entry, which no one else does. Error: *Refusal.
func (d *Desk) append(ctx context.Context, a *Act, outcome string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deskTrail)
	defer cancel()
	by, err := a.by(ctx), error(nil)
	a.Number, a.Again, err = d.trail.Append(ctx, AuditEntry{
		At: d.now().UTC(), Actor: by.Name, Role: by.Role, From: by.From, Via: by.Via, Action: a.Action, Target: a.Target,
		Reason: core.CutText(CleanText(a.Reason), core.WordsBytesMax), Before: document(a.Before), After: document(a.After), Outcome: core.CutText(outcome, core.WordsBytesMax),
		Key: CleanText(a.Key), Request: RequestFrom(ctx),
	})
	if err != nil {
		d.log.Warn("the audit trail cannot be written", "actor", by.Name, "action", a.Action, "target", a.Target, "error", err)
		return &Refusal{Code: 503, Detail: say.Of("refuse.trail-not-changed"), RetryMS: 1000}
	}
	return nil
}

// end adds what became of an entry, and returns what it says then. One that cannot be written now is settled later.
func (d *Desk) end(ctx context.Context, a *Act, outcome string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deskTrail)
	defer cancel()
	err := d.trail.SetOutcome(ctx, a.Number, outcome)
	if stands, settled := errors.AsType[Settled](err); settled {
		d.log.Warn("an entry of the audit trail has its outcome already", "entry", a.Number, "outcome", string(stands), "unlike", outcome)
		return string(stands)
	}
	if err != nil {
		d.log.Warn("an entry of the audit trail has no outcome yet", "entry", a.Number, "outcome", outcome, "error", err)
	}
	return outcome
}

// outcomeOf is what an error leaves to say.
func outcomeOf(err error) string {
	if err == nil {
		return outcomeDone
	}
	if bad, ok := errors.AsType[*Refusal](err); ok {
		return outcomeRefused + core.CutText(bad.Detail, core.WordsBytesMax)
	}
	return outcomeFailed + core.CutText(err.Error(), core.WordsBytesMax)
}

// document is a value as an entry has it.
func document(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(v) != nil {
		return nil // what is kept here always can be
	}
	return bytes.TrimSpace(data.Bytes())
}

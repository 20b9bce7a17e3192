package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

type (
	// actionJSON is operate.Request as it is sent: the action stands in the path, the key in a header.
	actionJSON struct {
		Action operate.Action `json:"action,omitempty" doc:"as in the path, or absent"`
		Reason string         `json:"reason,omitempty" maxLength:"1000" doc:"required for undo, resolve, accept and edit"`
		Step   string         `json:"step,omitempty" maxLength:"64" doc:"of resubmit and accept: the step meant; absent: the failed one"`
		Input  anyJSON        `json:"input,omitempty" doc:"of edit"`
		Result anyJSON        `json:"result,omitempty" doc:"of accept"`
		Until  *time.Time     `json:"until,omitempty" doc:"of extend, resubmit and edit: the new deadline; absent: the plan's time from now"`
		As     core.State     `json:"as,omitempty" enum:"processed,undone" doc:"of resolve"`
		IfSeq  int64          `json:"if_seq,omitempty" minimum:"0" doc:"refuse when the task's newest journal row (seq) is another; 0: whatever it is"`
	}
	actionIn struct {
		TaskIn
		Key  string `header:"Idempotency-Key" maxLength:"255" doc:"the same key is carried out once"`
		Body *actionJSON
	}
	answerOut struct{ Body operate.Answer }
)

// request is the body as the ports take it.
func (j *actionJSON) request(action operate.Action, key string) operate.Request {
	r := operate.Request{Action: action, Key: key}
	if j == nil {
		return r
	}
	r.Reason, r.Step, r.Input, r.Result, r.As, r.IfSeq = j.Reason, j.Step, []byte(j.Input), []byte(j.Result), j.As, j.IfSeq
	if j.Until != nil {
		r.Until = *j.Until
	}
	return r
}

// taskActions are the actions with what they are for.
var taskActions = []struct {
	action operate.Action
	says   string
	about  string
}{
	{operate.ActionCancel, "Ask that a task end", "What it did is undone. Of a task that is pending or processing."},
	{operate.ActionUndo, "Take back what a task did", "In any state but undone; again after an undo that gave up. Needs a reason."},
	{operate.ActionResubmit, "Start a task again", "In error: from the failed step on; undone: from the first, in a new round."},
	{operate.ActionEdit, "Start a task again with another input", "As resubmit. Needs an input and a reason; the old input is kept in the journal."},
	{operate.ActionAccept, "Count a failed step as done", "With a given result, in error. Needs a reason."},
	{operate.ActionResolve, "Settle a task by hand", "In error, as processed or undone. Needs a reason."},
	{operate.ActionExtend, "Give a task more time", "Of a task that is pending or processing."},
}

// actionRoutes are what may be asked of one task.
func (a *api) actionRoutes() {
	for _, one := range taskActions {
		register(a, route{method: http.MethodPost, path: "/v1/tasks/{type}/{id}/" + string(one.action), id: string(one.action) + "Task", tag: "tasks",
			needs: operate.RoleOperator, status: 202, summary: one.says,
			about: one.about + " Where the state forbids it: 409 with what is possible."}, func(ctx context.Context, in *actionIn) (*answerOut, error) {
			if a.ports.Actions == nil {
				return nil, notServed("actions on tasks")
			}
			if bad := ingest.CheckNames(in.Type, in.ID); bad != nil {
				return nil, bad
			}
			if in.Body != nil && cmp.Or(in.Body.Action, one.action) != one.action {
				return nil, ingest.Refuse(400, ingest.CauseBody, "field action is %s, but the path says %s", core.QuoteShort(string(in.Body.Action)), one.action)
			}
			r := in.Body.request(one.action, in.Key)
			if bad := checkReason(r.Reason); bad != nil {
				return nil, bad
			}
			if bad := needsOf(&r); bad != nil {
				return nil, bad
			}
			actor, _ := operate.ActorFrom(ctx) // there is one: the gate wants it
			answer, err := a.ports.Actions.Do(ctx, actor, operate.TaskRef{Type: in.Type, ID: in.ID}, r)
			return &answerOut{answer}, err
		})
	}
}

// needsOf refuses a request that lacks what its action needs, or says what belongs to another.
func needsOf(r *operate.Request) *ingest.Refusal {
	for _, one := range []struct {
		field    string
		said     bool
		required bool
		takes    []operate.Action
	}{
		{"reason", r.Reason != "", true, []operate.Action{operate.ActionUndo, operate.ActionResolve, operate.ActionAccept, operate.ActionEdit}},
		{"input", len(r.Input) > 0, true, []operate.Action{operate.ActionEdit}},
		{"as", r.As != "", true, []operate.Action{operate.ActionResolve}},
		{"until", !r.Until.IsZero(), true, []operate.Action{operate.ActionExtend}},
		{"until", !r.Until.IsZero(), false, []operate.Action{operate.ActionExtend, operate.ActionResubmit, operate.ActionEdit}},
		{"result", len(r.Result) > 0, false, []operate.Action{operate.ActionAccept}},
		{"step", r.Step != "", false, []operate.Action{operate.ActionAccept, operate.ActionResubmit, operate.ActionEdit}},
	} {
		mine := false
		for _, action := range one.takes {
			mine = mine || action == r.Action
		}
		switch {
		case mine && one.required && !one.said:
			return ingest.Refuse(400, ingest.CauseBody, "field %s: none is given, but %s needs one", one.field, r.Action)
		case !mine && one.said && one.field != "reason" && (!one.required || one.field != "until"):
			return ingest.Refuse(400, ingest.CauseBody, "field %s does not belong to %s", one.field, r.Action)
		}
	}
	if len(r.Input) > core.InputBytesMax {
		return ingest.Refuse(413, ingest.CauseInputSize, "field input has %d bytes, the limit is %d", len(r.Input), core.InputBytesMax)
	}
	if len(r.Result) > core.ResultBytesMax {
		return ingest.Refuse(413, ingest.CauseInputSize, "field result has %d bytes, the limit is %d", len(r.Result), core.ResultBytesMax)
	}
	return nil
}

// checkReason bounds a person's words.
func checkReason(reason string) *ingest.Refusal {
	if n := len(reason); n > operate.ReasonBytesMax || !plainText(reason, lineEnds) {
		return ingest.Refuse(400, ingest.CauseBody, "field reason %s has %d bytes, want at most %d of text without control characters", core.QuoteShort(reason), n, operate.ReasonBytesMax)
	}
	return nil
}

package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

type (
	// actionJSON is operate.Request as it is sent: the action stands in the path, the key in a header.
	actionJSON struct {
		Action  operate.Action    `json:"action,omitempty" doc:"as in the path, or absent"`
		Reason  string            `json:"reason,omitempty" doc:"at most 1000 bytes; required for undo, resolve, accept and edit"`
		Step    string            `json:"step,omitempty" doc:"of resubmit, edit and accept: the step meant; absent: the failed one; of signal: the one that waits for it; of undo: the step of an undone task whose effect stands"`
		Input   anyJSON           `json:"input,omitempty" doc:"of edit"`
		Patch   anyJSON           `json:"patch,omitempty" doc:"of an operation that edits, instead of an input: a JSON Merge Patch (RFC 7386) of each task's own"`
		Result  anyJSON           `json:"result,omitempty" doc:"of accept; of signal: the payload, absent: it is refused"`
		Ask     string            `json:"ask,omitempty" doc:"of signal: the ask of the step that it answers, as the task shows it; absent: the only one. Another one: 409; none where it is needed: 428"`
		Until   *time.Time        `json:"until,omitempty" doc:"of extend, resubmit, edit and accept: the new deadline; absent: the plan's time from now, or its own if later"`
		As      core.State        `json:"as,omitempty" doc:"of resolve: processed or undone"`
		Found   core.ProbeOutcome `json:"found,omitempty" doc:"of resubmit and edit: absent, of undo: done: what you have seen at the service of a step whose key is too old to be used"`
		Version int64             `json:"version,omitempty" doc:"of migrate: of the plan, to go on by"`
		IfSeq   int64             `json:"if_seq,omitempty" doc:"refuse when the task's newest journal row (seq) is another; 0: whatever it is"`
	}
	// KeyIn is the key of a change.
	KeyIn struct {
		Key string `header:"Idempotency-Key" maxLength:"255" doc:"the same key is carried out once"`
	}
	actionIn struct {
		TaskIn
		KeyIn
		Body *actionJSON
	}
)

// request is the body as the ports take it.
func (j *actionJSON) request(action operate.Action, key string) operate.Request {
	r := operate.Request{Action: action, Key: key}
	if j == nil {
		return r
	}
	r.Ask = j.Ask
	r.Reason, r.Step, r.Input, r.Patch, r.Result, r.As, r.IfSeq, r.Version = j.Reason, j.Step, []byte(j.Input), []byte(j.Patch), []byte(j.Result), j.As, j.IfSeq, j.Version
	r.Found = j.Found
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
	{operate.ActionMigrate, "Let a task go on by another version of its plan", "Where every step that has begun is the same in both. Pending, processing or in error. Needs a reason."},
	{operate.ActionSignal, "Answer a signal step", "With its payload as the result; without one it is refused, with the reason. Before the step begins the answer is kept."},
}

// actionRoutes are what may be asked of one task.
func (a *api) actionRoutes() {
	for _, one := range taskActions {
		register(a, route{method: http.MethodPost, path: "/v1/tasks/{type}/{id}/" + string(one.action), id: string(one.action) + "Task", tag: "tasks",
			needs: operate.RoleOperator, status: 202, summary: one.says,
			about: one.about + " Where the state forbids it: 409 with what is possible."}, func(ctx context.Context, in *actionIn) (out operate.Answer, err error) {
			if bad := ingest.CheckTask(in.Type, in.ID); bad != nil {
				return out, bad
			}
			if in.Body != nil && cmp.Or(in.Body.Action, one.action) != one.action {
				return out, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.action-path", "action", core.QuoteShort(string(in.Body.Action)), "path", one.action))
			}
			r := in.Body.request(one.action, in.Key)
			if err := core.CheckAnswer(r.Result, r.Reason); err != nil && one.action == operate.ActionSignal {
				return out, ingest.Refuse(400, ingest.CauseBody, "%v", err)
			}
			return a.ports.Actions.Do(ctx, by(ctx), operate.TaskRef{Type: in.Type, ID: in.ID}, r)
		})
	}
}

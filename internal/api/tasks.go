package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/taskform"
)

// Limits of a filter's words.
const (
	fingerprintMax = 64
	labelMax       = 2*operate.LabelBytesMax + 1
)

// FilterWords are what selects tasks, in a query or a body.
type FilterWords struct {
	Type        string `query:"type" json:"type,omitempty" maxLength:"64"`
	State       string `query:"state" json:"state,omitempty" enum:"pending,processing,processed,undoing,undone,error"`
	Step        string `query:"step" json:"step,omitempty" maxLength:"64" doc:"that failed"`
	Fingerprint string `query:"fingerprint" json:"fingerprint,omitempty" maxLength:"64" doc:"of the failure, as failure groups have it"`
	Label       string `query:"label" json:"label,omitempty" maxLength:"129" doc:"key=value"`
	CreatedFrom string `query:"created_from" json:"created_from,omitempty" format:"date-time" doc:"created at or after"`
	CreatedTo   string `query:"created_to" json:"created_to,omitempty" format:"date-time" doc:"created before"`
	DeadlineTo  string `query:"deadline_to" json:"deadline_to,omitempty" format:"date-time" doc:"the deadline is before"`
	PlanVersion int64  `query:"plan_version" json:"plan_version,omitempty" minimum:"0" doc:"of the task's plan; 0: any"`
}

// filter checks the words; field says where each stands.
func (f *FilterWords) filter(field func(name string) string) (core.Filter, *ingest.Refusal) {
	out := core.Filter{Type: f.Type, State: core.State(f.State), Step: f.Step, Fingerprint: f.Fingerprint, Label: f.Label, PlanVersion: f.PlanVersion}
	if f.PlanVersion < 0 {
		return out, ingest.Refuse(400, ingest.CauseQuery, "%s is %d, want 0 or more", field("plan_version"), f.PlanVersion)
	}
	if f.Type != "" {
		if err := core.CheckName("type", f.Type); err != nil {
			return out, ingest.Refuse(400, ingest.CauseTypeName, "%v", err)
		}
	}
	if f.State != "" && !slices.Contains(states, out.State) {
		return out, ingest.Refuse(400, ingest.CauseQuery, "%s is %s, want one of %v", field("state"), core.QuoteShort(f.State), states)
	}
	if f.Step != "" {
		if err := core.CheckName("step", f.Step); err != nil {
			return out, ingest.Refuse(400, ingest.CauseQuery, "%s: %v", field("step"), err)
		}
	}
	if n := len(f.Fingerprint); n > fingerprintMax || !core.PlainText(f.Fingerprint) {
		return out, ingest.Refuse(400, ingest.CauseQuery, "%s %s has %d bytes, want at most %d of plain text", field("fingerprint"), core.QuoteShort(f.Fingerprint), n, fingerprintMax)
	}
	if f.Label != "" {
		if _, err := core.ParseLabel(f.Label); err != nil {
			return out, ingest.Refuse(400, ingest.CauseLabels, "%s: %v", field("label"), err)
		}
	}
	var bad *ingest.Refusal
	for _, at := range []struct {
		name, said string
		into       *core.Instant
	}{{"created_from", f.CreatedFrom, &out.CreatedFrom}, {"created_to", f.CreatedTo, &out.CreatedTo}, {"deadline_to", f.DeadlineTo, &out.DeadlineTo}} {
		if *at.into, bad = timeIn(field(at.name), at.said); bad != nil {
			return out, bad
		}
	}
	if out.CreatedFrom != 0 && out.CreatedTo != 0 && out.CreatedFrom >= out.CreatedTo {
		return out, ingest.Refuse(400, ingest.CauseQuery, "%s is %s, want a time before created_to (%s)", field("created_from"), core.QuoteShort(f.CreatedFrom), core.QuoteShort(f.CreatedTo))
	}
	return out, nil
}

func inQuery(name string) string { return "query parameter " + name }

// The inputs of the routes of tasks, as they are described.
type (
	// TypeIn is a type in a path. What an input embeds is exported, because huma looks no further.
	TypeIn struct {
		Type string `path:"type" maxLength:"64" doc:"the plan's name"`
	}
	// TaskIn is a task in a path.
	TaskIn struct {
		TypeIn
		ID string `path:"id" maxLength:"255"`
	}
	// SubmissionIn is what a submission says besides its names.
	SubmissionIn struct {
		submit.Form
		Body anyJSON
	}
	postIn struct {
		TypeIn
		Key string `header:"Idempotency-Key" maxLength:"255" doc:"the id, or a text that an id is made of"`
		SubmissionIn
	}
	putIn struct {
		TaskIn
		SubmissionIn
	}
	getIn struct {
		TaskIn
		Position string `query:"after" doc:"position of the submission, as the 202 told it: pending until its owner has read it, instead of 404"`
	}
	cancelIn struct {
		TaskIn
		Reason        string `query:"reason" maxLength:"1000"`
		EvenIfUnknown bool   `query:"even_if_unknown" doc:"refuse a submission that has yet to come"`
	}
	listIn struct {
		FilterWords
		Waits  string `query:"waits" enum:"signal" doc:"signal: only tasks that wait for an answer to a signal step"`
		Parent string `query:"parent" maxLength:"255" doc:"id of the task whose children are wanted"`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"rows of a page, 100 without it; of an export: rows in all"`
		After  string `query:"after" maxLength:"512" doc:"next of the page before"`
		FormatIn
	}
	acceptedOut struct {
		Location string `header:"Location" doc:"of the task, with the position"`
		Body     acceptedJSON
	}
)

// anyJSON is JSON of any kind, passed on as it is.
type anyJSON json.RawMessage

// Schema implements huma.SchemaProvider.
func (anyJSON) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "JSON of any kind"}
}

// MarshalJSON implements json.Marshaler.
func (j anyJSON) MarshalJSON() ([]byte, error) { return json.RawMessage(j).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (j *anyJSON) UnmarshalJSON(data []byte) error { return (*json.RawMessage)(j).UnmarshalJSON(data) }

// taskRoutes are submitting and reading. The handlers of submissions read their bodies themselves, because a library in
// the way costs more than the way.
func (a *api) taskRoutes() {
	const tag = "tasks"
	submit := func(op *huma.Operation) { op.MaxBodyBytes = core.InputBytesMax }
	there := func(op *huma.Operation, what reflect.Type, name string) {
		op.Responses["200"] = &huma.Response{Description: "it is a task already", Content: map[string]*huma.MediaType{
			"application/json": {Schema: a.huma.OpenAPI().Components.Schemas.Schema(what, true, name)}}}
	}
	described[postIn, acceptedOut](a, route{method: "POST", path: "/v1/tasks/{type}", id: "submitTask", tag: tag, needs: operate.RoleClient, status: 202,
		summary: "Submit a task", about: "The body is the input. The answer leaves after the submission is on disk. A task that is there already, as far as was looked, is 200 with its state."}, a.post, func(op *huma.Operation) {
		submit(op)
		there(op, reflect.TypeFor[acceptedJSON](), "Accepted")
	})
	described[putIn, acceptedOut](a, route{method: "PUT", path: "/v1/tasks/{type}/{id}", id: "putTask", tag: tag, needs: operate.RoleClient, status: 202,
		summary: "Submit a task under an id", about: "The same again is 200 with the task; another input is 409."}, a.put, func(op *huma.Operation) {
		submit(op)
		there(op, reflect.TypeFor[taskform.Task](), "Task")
	})
	described[getIn, body[taskform.Task]](a, route{method: "GET", path: "/v1/tasks/{type}/{id}", id: "getTask", tag: tag, needs: operate.RoleViewer, client: true,
		summary: "A task with its steps, and why it is where it is"}, a.get, nil)
	described[cancelIn, body[cancelledJSON]](a, route{method: "DELETE", path: "/v1/tasks/{type}/{id}", id: "deleteTask", tag: tag, needs: operate.RoleClient, status: 202,
		summary: "Ask that a task end", about: "What it did is undone. Reason and even_if_unknown stand in the query or in a JSON object."}, a.cancel, nil)
	described[listIn, body[pageJSON]](a, route{method: "GET", path: "/v1/tasks", id: "listTasks", tag: tag, needs: operate.RoleViewer,
		summary: "Tasks, newest first", about: "Without input and steps."}, a.list, func(op *huma.Operation) {
		op.Responses["200"] = listAnswer(a.huma.OpenAPI().Components.Schemas, reflect.TypeFor[pageJSON](), "Page")
	})
	described[bulkIn, struct{}](a, route{method: "POST", path: "/v1/tasks", id: "submitTasks", tag: tag, needs: operate.RoleClient,
		summary: "Submit many tasks", about: "A line of JSON for each; a line is answered for each, in order, as it is stored or refused. The same id and input again is the same task. A line that finds no room waits for it."}, a.submitMany, describeBulk(a))
	listing(a, route{method: "GET", path: "/v1/tasks/{type}/{id}/journal", id: "getJournal", tag: tag, needs: operate.RoleViewer,
		summary: "The journal of a task, newest first"}, a.journal)
}

type (
	journalIn struct {
		TaskIn
		PageIn
	}
	recordJSON struct {
		Seq         int64      `json:"seq"`
		Kind        core.Kind  `json:"kind"`
		At          string     `json:"at"`
		Actor       string     `json:"actor,omitempty"`
		Reason      string     `json:"reason,omitempty"`
		State       core.State `json:"state" doc:"of the task, after this row"`
		Round       int        `json:"round"`
		Step        string     `json:"step,omitempty" doc:"whose attempt ended"`
		Status      string     `json:"status,omitempty" doc:"of the step, after this row"`
		Attempt     int        `json:"attempt,omitempty"`
		Code        int        `json:"code,omitempty"`
		Error       string     `json:"error,omitempty"`
		Result      anyJSON    `json:"result,omitempty"`
		Next        string     `json:"next,omitempty" doc:"step whose command this row issues"`
		NextAttempt int        `json:"next_attempt,omitempty"`
		Undo        bool       `json:"undo,omitempty" doc:"the command is an undo"`
		Due         string     `json:"due,omitempty" doc:"complete-by of that command, or when the next attempt may leave"`
		Deadline    string     `json:"deadline,omitempty" doc:"of the task, when this row set it"`
		Effects     string     `json:"effects_possible_until,omitempty" doc:"until then an attempt of the step may still take effect"`
	}
	journalJSON struct {
		Type    string       `json:"type"`
		ID      string       `json:"id"`
		Records []recordJSON `json:"records"`
		Next    string       `json:"next,omitempty" doc:"after of the page of older rows; absent: this was the last"`
	}
)

// journal reads a page of a task's journal from its end; the cursor is the number of the oldest row that was shown.
func (a *api) journal(ctx context.Context, in *journalIn, after string, limit int) (page journalJSON, rows []recordJSON, next string, err error) {
	before := int64(0)
	if after != "" {
		if before, err = strconv.ParseInt(after, 10, 64); err != nil || before < 1 {
			return page, nil, "", ingest.Refuse(400, ingest.CauseQuery, "query parameter after is %s, want the next of a page", core.QuoteShort(after))
		}
	}
	view, err := a.known(ctx, in.Type, in.ID)
	if err != nil {
		return page, nil, "", err
	}
	records, err := a.ports.Reader.JournalPage(ctx, view.Partition, view.Number, before, limit)
	if err != nil {
		return page, nil, "", err
	}
	page = journalJSON{Type: in.Type, ID: in.ID, Records: make([]recordJSON, len(records))}
	for i := range records {
		page.Records[i] = recordOf(&records[i], view.Steps)
	}
	if n := len(records); n == limit && records[n-1].Seq > 1 {
		page.Next = strconv.FormatInt(records[n-1].Seq, 10)
	}
	return page, page.Records, page.Next, nil
}

// recordOf is a journal row with the names of the plan's steps.
func recordOf(r *core.Record, steps []core.StepView) recordJSON {
	name := func(step int) string {
		if step < 0 || step >= len(steps) {
			return ""
		}
		return steps[step].Name
	}
	out := recordJSON{
		Seq: r.Seq, Kind: r.Kind, At: taskform.Time(r.At), Actor: r.Actor, Reason: r.Reason, State: r.State, Round: r.Round, Step: name(r.Step),
		Attempt: r.Attempt, Code: r.Code, Error: strings.ToValidUTF8(r.Error, "\uFFFD"), Result: anyJSON(taskform.Raw(r.Result)), Next: name(r.Next), NextAttempt: r.NextAttempt, Undo: r.Undo,
		Due: taskform.Time(r.Due), Deadline: taskform.Time(r.Deadline), Effects: taskform.Time(r.EffectsPossibleUntil),
	}
	if out.Step != "" {
		out.Status = r.StepWord()
	}
	return out
}

// known reads a task for operators. Errors: a refusal of its names, core.ErrNotFound.
func (a *api) known(ctx context.Context, taskType, id string) (core.View, error) {
	if bad := ingest.CheckTask(taskType, id); bad != nil {
		return core.View{}, bad
	}
	view, err := a.ports.Reader.Get(ctx, a.partition(id), id)
	if errors.Is(err, core.ErrNotFound) || err == nil && view.Type != taskType {
		return view, notFound(taskType, id)
	}
	if err != nil {
		return view, fmt.Errorf("task %s of type %s: %w", id, taskType, err)
	}
	return view, nil
}

package api

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// The bodies of the API. A field is never renamed or given another meaning.
type (
	acceptedJSON struct {
		Task     string     `json:"task"`
		ID       string     `json:"id"`
		Type     string     `json:"type"`
		State    core.State `json:"state"`
		Stream   string     `json:"stream,omitempty"`
		Position string     `json:"stream_position,omitempty"` // <partition>.<seq>
		Warning  string     `json:"warning,omitempty"`
	}
	cancelledJSON struct {
		Task     string     `json:"task"`
		ID       string     `json:"id"`
		Type     string     `json:"type"`
		Asked    string     `json:"asked"`
		State    core.State `json:"state,omitempty"` // when it was asked
		Outcome  string     `json:"outcome"`         // what will be, in words
		Position string     `json:"control_position"`
	}
	pendingJSON struct {
		ID        string     `json:"id"`
		Type      string     `json:"type"`
		Partition int        `json:"partition"`
		State     core.State `json:"state"`
	}
	taskJSON struct {
		ID          string          `json:"id"`
		Type        string          `json:"type"`
		PlanVersion int64           `json:"plan_version"`
		Partition   int             `json:"partition"`
		Number      int64           `json:"number"`
		State       core.State      `json:"state"`
		Reason      string          `json:"reason,omitempty"`
		FailedStep  string          `json:"failed_step,omitempty"`
		Round       int             `json:"round"`
		Failures    int             `json:"failures"`
		LockedBy    string          `json:"locked_by,omitempty"`
		WaitsFor    string          `json:"waits_for,omitempty"`
		CompleteBy  string          `json:"complete_by,omitempty"`
		CreatedAt   string          `json:"created_at,omitempty"`
		UpdatedAt   string          `json:"updated_at,omitempty"`
		EndedAt     string          `json:"ended_at,omitempty"`
		StartAt     string          `json:"start_at,omitempty" doc:"nothing of it begins before; absent: at once"`
		Input       json.RawMessage `json:"input,omitempty"`
		InputHash   []byte          `json:"input_hash,omitempty"` // SHA-256 of type, NUL and input, in base64
		Steps       []stepJSON      `json:"steps,omitempty"`
		Parent      *parentJSON     `json:"parent,omitempty" doc:"the task that this one is a part of; absent: it is a whole"`
		Parents     []parentJSON    `json:"parents,omitempty" doc:"that task, the one that it is a part of, and so on up to the root, at most 8; absent in a list"`
		Result      json.RawMessage `json:"result,omitempty" doc:"of a processed task whose plan has one"`

		Seq         int64             `json:"seq,omitempty" doc:"number of the newest journal row: if_seq of an action"`
		Fingerprint string            `json:"fingerprint,omitempty" doc:"of the failure, as failure groups have it"`
		Labels      map[string]string `json:"labels,omitempty"`
		Why         string            `json:"why,omitempty" doc:"why the task is where it is, and what comes next"`
		Possible    []operate.Action  `json:"possible,omitempty" doc:"what may be asked of it now"`
	}
	// parentJSON is the parent of a child.
	parentJSON struct {
		ID   string `json:"id"`
		Type string `json:"type,omitempty" doc:"absent in a list"`
	}
	// childrenJSON are the children of a step in the task's round, by what became of them.
	childrenJSON struct {
		Link      string `json:"link" doc:"the list of the task's children, of all its steps and rounds"`
		Type      string `json:"type"`
		Count     int    `json:"count,omitempty" doc:"of an each: its elements"`
		Born      int    `json:"born"`
		Running   int    `json:"running"`
		Processed int    `json:"processed"`
		Undone    int    `json:"undone"`
		Error     int    `json:"error"`
	}
	// triesJSON are the tries of a step's undo in the task's round.
	triesJSON struct {
		Attempt int    `json:"attempt"`
		Code    int    `json:"code,omitempty" doc:"of the newest that ended"`
		Error   string `json:"error,omitempty"`
		At      string `json:"at"`
		By      string `json:"by,omitempty"`
	}
	stepJSON struct {
		Name       string          `json:"name"`
		Kind       string          `json:"kind,omitempty" enum:"wait,signal,task,each" doc:"absent: a call of an agent"`
		Agent      string          `json:"agent" doc:"of a call"`
		Children   *childrenJSON   `json:"children,omitempty" doc:"of task and each"`
		When       string          `json:"when,omitempty" doc:"CEL: the condition under which it begins; absent: it begins"`
		Optional   bool            `json:"optional,omitempty" doc:"the task goes on without it when it fails"`
		Status     string          `json:"status" doc:"waiting, running, done, failed, undoing, undone, skipped; signalled: a signal came before its step began; gave_up: nothing tries its undo any more, and what it did may be there"`
		Attempt    int             `json:"attempt" doc:"of its do, as code, error, at and by"`
		CompleteBy string          `json:"complete_by,omitempty"`
		Code       int             `json:"code,omitempty"`
		Error      string          `json:"error,omitempty"`
		Result     json.RawMessage `json:"result,omitempty"`
		Ask        string          `json:"ask,omitempty" doc:"of a signal without its answer: the token of what it asks, which an answer sends back"`
		AskNeeded  bool            `json:"ask_needed,omitempty" doc:"an answer without that token is refused"`
		KeyUntil   string          `json:"key_until,omitempty" doc:"of a call that is not over: until when its service remembers the key that was used; after that it takes a word of what is found there"`
		At         string          `json:"at,omitempty"`
		By         string          `json:"by,omitempty"`
		Undo       *triesJSON      `json:"undo,omitempty" doc:"once its undo has begun"`
	}
	pageJSON struct {
		Tasks   []taskJSON `json:"tasks"`
		Next    string     `json:"next,omitempty" doc:"after of the next page; absent: this was the last"`
		Partial bool       `json:"partial,omitempty" doc:"the search was cut off, not at its end: next goes on"`
	}
	countJSON struct {
		Type    string     `json:"type"`
		State   core.State `json:"state"`
		Tasks   int64      `json:"tasks"`
		AtLeast bool       `json:"at_least,omitempty" doc:"the count was cut: there may be more than tasks; with 0 tasks none was counted, and how many there are is not known"`
	}
	countsJSON struct {
		Counts []countJSON `json:"counts"`
	}
	// problemJSON is a problem document of RFC 9457 with members of our own.
	problemJSON struct {
		Type     string           `json:"type"`
		Title    string           `json:"title"`
		Status   int              `json:"status"`
		Detail   string           `json:"detail" doc:"one sentence: field, value and limit, or state and what is possible"`
		ErrCode  int              `json:"err_code" doc:"one number for each cause"`
		RetryMS  int64            `json:"retry_ms,omitempty" doc:"when the same request may succeed"`
		Field    string           `json:"field,omitempty" doc:"that is wrong"`
		Possible []operate.Action `json:"possible,omitempty" doc:"of 409 and 428: what may be asked of the task as it is"`
	}
)

func viewJSON(v *core.View) taskJSON {
	t := taskJSON{
		ID: v.ID, Type: v.Type, PlanVersion: v.PlanVersion, Partition: v.Partition, Number: v.Number,
		State: v.State, Reason: v.Reason, FailedStep: v.FailedStep, Round: v.Round, Failures: v.Failures, LockedBy: v.LockedBy, WaitsFor: v.WaitsFor,
		CompleteBy: timeText(v.CompleteBy), CreatedAt: timeText(v.CreatedAt), UpdatedAt: timeText(v.UpdatedAt),
		EndedAt: timeText(v.EndedAt), StartAt: timeText(v.StartAt), Input: rawJSON(v.Input), InputHash: v.InputHash,
		Seq: v.Seq, Fingerprint: v.Fingerprint, Why: v.Sentence, Result: rawJSON(v.Result),
	}
	t.Labels = labelsOf(v.Labels)
	if v.Parent != "" {
		t.Parent = &parentJSON{v.Parent, v.ParentType}
	}
	for _, up := range v.Ancestors {
		t.Parents = append(t.Parents, parentJSON{up.ID, up.Type})
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		t.Steps = append(t.Steps, stepJSON{
			Name: s.Name, Kind: string(s.Kind), Agent: s.Agent, Children: childrenOf(v, s), When: s.When, Optional: s.Optional, Status: s.Status, Attempt: s.Attempt, CompleteBy: timeText(s.Due),
			Code: s.Code, Error: s.Error, Result: rawJSON(s.Result), Ask: s.Ask, AskNeeded: s.AskNeeded, KeyUntil: timeText(s.KeyUntil), At: timeText(s.At), By: s.By,
		})
		if u := &s.Undo; u.At != 0 {
			t.Steps[i].Undo = &triesJSON{u.Attempt, u.Code, u.Error, timeText(u.At), u.By}
		}
	}
	return t
}

// childrenOf are the children of a step; nil: its kind has none.
func childrenOf(v *core.View, s *core.StepView) *childrenJSON {
	if !s.Kind.Parent() {
		return nil
	}
	c := s.Children
	return &childrenJSON{Link: "/v1/tasks?parent=" + url.QueryEscape(v.ID), Type: s.Child, Count: s.Count, Born: c.Born, Running: c.Running, Processed: c.Done, Undone: c.Undone, Error: c.Error}
}

// labelsOf are a task's labels by key.
func labelsOf(labels []core.Label) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	byKey := make(map[string]string, len(labels))
	for _, l := range labels {
		byKey[l.Key] = l.Value
	}
	return byKey
}

// EncodeTask is the JSON of a task as every endpoint shows it.
func EncodeTask(v *core.View) ([]byte, error) { return encode(viewJSON(v)) }

// EncodePage is the JSON of a page of a list as every endpoint shows it.
func EncodePage(p *core.Page) ([]byte, error) { return encode(pageOf(p)) }

func pageOf(p *core.Page) pageJSON {
	out := pageJSON{Tasks: make([]taskJSON, len(p.Tasks)), Next: p.Next, Partial: p.Partial}
	for i := range p.Tasks {
		out.Tasks[i] = viewJSON(&p.Tasks[i])
	}
	return out
}

// encode leaves inputs and results as they came.
func encode(body any) ([]byte, error) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return data.Bytes(), err
}

func timeText(at core.Instant) string {
	if at == 0 {
		return ""
	}
	return at.Time().Format(core.TimeLayout)
}

// rawJSON passes JSON through. What is not JSON, or not UTF-8, becomes a string,
// so that one strange task does not spoil the page it is on.
func rawJSON(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	if json.Valid(b) && utf8.Valid(b) {
		return b
	}
	text, err := json.Marshal(strings.ToValidUTF8(string(b), "\uFFFD"))
	if err != nil {
		return nil // a string always marshals
	}
	return text
}

func reply(w http.ResponseWriter, status int, body any) { write(w, status, "application/json", body) }

// problem answers a refusal as a problem document.
func problem(w http.ResponseWriter, r *ingest.Refusal) {
	p := problemOf(r)
	writeProblem(w, &p)
}

func writeProblem(w http.ResponseWriter, p *problemJSON) {
	if retry := p.retryAfter(); retry != "" {
		w.Header().Set("Retry-After", retry)
	}
	write(w, p.Status, "application/problem+json", p)
}

// retryAfter is the header of that name: whole seconds, and never a hint to come back at once; empty: none.
func (p *problemJSON) retryAfter() string {
	if p.RetryMS <= 0 {
		return ""
	}
	return strconv.Itoa(int(max(1, math.Ceil(float64(p.RetryMS)/1000))))
}

func write(w http.ResponseWriter, status int, contentType string, body any) {
	data, err := encode(body)
	if err != nil {
		status = http.StatusInternalServerError
		data = []byte(`{"title":"Internal Server Error","status":500}`)
	}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// An error here is a client that went away, and cannot be told.
	_, _ = w.Write(data)
}

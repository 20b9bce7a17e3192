// Package taskform is a task as JSON: what the HTTP API, the answers over NATS and the commands show, and what clients read.
package taskform

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// A field is never renamed or given another meaning.
type (
	// Task is a task with its steps.
	Task struct {
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
		Steps       []Step          `json:"steps,omitempty"`
		Parent      *Parent         `json:"parent,omitempty" doc:"the task that this one is a part of; absent: it is a whole"`
		Parents     []Parent        `json:"parents,omitempty" doc:"that task, the one that it is a part of, and so on up to the root, at most 8; absent in a list"`
		Result      json.RawMessage `json:"result,omitempty" doc:"of a processed task whose plan has one"`

		Seq         int64             `json:"seq,omitempty" doc:"number of the newest journal row: if_seq of an action"`
		Fingerprint string            `json:"fingerprint,omitempty" doc:"of the failure, as failure groups have it"`
		Labels      map[string]string `json:"labels,omitempty"`
		Why         string            `json:"why,omitempty" doc:"why the task is where it is, and what comes next"`
		Possible    []string          `json:"possible,omitempty" doc:"what may be asked of it now"`
	}
	// Parent is the parent of a child.
	Parent struct {
		ID   string `json:"id"`
		Type string `json:"type,omitempty" doc:"absent in a list"`
	}
	// Children are the children of a step in the task's round, by what became of them.
	Children struct {
		Link      string `json:"link" doc:"the list of the task's children, of all its steps and rounds"`
		Type      string `json:"type"`
		Count     int    `json:"count,omitempty" doc:"of an each: its elements"`
		Born      int    `json:"born"`
		Running   int    `json:"running"`
		Processed int    `json:"processed"`
		Undone    int    `json:"undone"`
		Error     int    `json:"error"`
	}
	// Tries are the attempts of a step's undo in the task's round.
	Tries struct {
		Attempt int    `json:"attempt"`
		Code    int    `json:"code,omitempty" doc:"of the newest that ended"`
		Error   string `json:"error,omitempty"`
		At      string `json:"at"`
		By      string `json:"by,omitempty"`
	}
	// Step is how a step stands.
	Step struct {
		Name       string          `json:"name"`
		Kind       string          `json:"kind,omitempty" enum:"wait,signal,task,each" doc:"absent: a call of an agent"`
		Agent      string          `json:"agent" doc:"of a call"`
		Children   *Children       `json:"children,omitempty" doc:"of task and each"`
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
		Undo       *Tries          `json:"undo,omitempty" doc:"once its undo has begun"`
	}
)

// Of is a task as it is shown.
func Of(v *core.View) Task {
	t := Task{
		ID: v.ID, Type: v.Type, PlanVersion: v.PlanVersion, Partition: v.Partition, Number: v.Number,
		State: v.State, Reason: v.Reason, FailedStep: v.FailedStep, Round: v.Round, Failures: v.Failures, LockedBy: v.LockedBy, WaitsFor: v.WaitsFor,
		CompleteBy: Time(v.CompleteBy), CreatedAt: Time(v.CreatedAt), UpdatedAt: Time(v.UpdatedAt),
		EndedAt: Time(v.EndedAt), StartAt: Time(v.StartAt), Input: Raw(v.Input), InputHash: v.InputHash,
		Seq: v.Seq, Fingerprint: v.Fingerprint, Why: v.Sentence, Result: Raw(v.Result),
	}
	t.Labels = Labels(v.Labels)
	if v.Parent != "" {
		t.Parent = &Parent{v.Parent, v.ParentType}
	}
	for _, up := range v.Ancestors {
		t.Parents = append(t.Parents, Parent{up.ID, up.Type})
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		t.Steps = append(t.Steps, Step{
			Name: s.Name, Kind: string(s.Kind), Agent: s.Agent, Children: childrenOf(v, s), When: s.When, Optional: s.Optional, Status: s.Status, Attempt: s.Attempt, CompleteBy: Time(s.Due),
			Code: s.Code, Error: s.Error, Result: Raw(s.Result), Ask: s.Ask, AskNeeded: s.AskNeeded, KeyUntil: Time(s.KeyUntil), At: Time(s.At), By: s.By,
		})
		if u := &s.Undo; u.At != 0 {
			t.Steps[i].Undo = &Tries{u.Attempt, u.Code, u.Error, Time(u.At), u.By}
		}
	}
	return t
}

// childrenOf are the children of a step; nil: its kind has none.
func childrenOf(v *core.View, s *core.StepView) *Children {
	if !s.Kind.Parent() {
		return nil
	}
	c := s.Children
	return &Children{Link: "/v1/tasks?parent=" + url.QueryEscape(v.ID), Type: s.Child, Count: s.Count, Born: c.Born, Running: c.Running, Processed: c.Done, Undone: c.Undone, Error: c.Error}
}

// Labels are a task's labels by key.
func Labels(labels []core.Label) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	byKey := make(map[string]string, len(labels))
	for _, l := range labels {
		byKey[l.Key] = l.Value
	}
	return byKey
}

// Time is an instant as text; empty: none.
func Time(at core.Instant) string {
	if at == 0 {
		return ""
	}
	return at.Time().Format(core.TimeLayout)
}

// Instant reads a time; empty is none.
func Instant(text string) (core.Instant, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("%s is no time, want one such as 2026-12-31T23:00:00Z", core.QuoteShort(text))
	}
	return core.InstantOf(t), nil
}

// Raw passes JSON through. What is not JSON, or not UTF-8, becomes a string,
// so that one strange task does not spoil the page it is on.
func Raw(b []byte) json.RawMessage {
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

// View reads what Of made, but for what only people read. Error: a time that is none.
func (t *Task) View() (core.View, error) {
	v := core.View{
		ID: t.ID, Type: t.Type, PlanVersion: t.PlanVersion, Partition: t.Partition, Number: t.Number, State: t.State,
		Reason: t.Reason, FailedStep: t.FailedStep, Round: t.Round, Failures: t.Failures, WaitsFor: t.WaitsFor, Input: t.Input, InputHash: t.InputHash, Result: t.Result,
	}
	if t.Parent != nil {
		v.Parent, v.ParentType = t.Parent.ID, t.Parent.Type
	}
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		v.Labels = append(v.Labels, core.Label{Key: key, Value: t.Labels[key]})
	}
	var err error
	read := func(text string) core.Instant {
		at, e := Instant(text)
		if err == nil {
			err = e
		}
		return at
	}
	v.CompleteBy, v.CreatedAt, v.UpdatedAt, v.EndedAt, v.StartAt = read(t.CompleteBy), read(t.CreatedAt), read(t.UpdatedAt), read(t.EndedAt), read(t.StartAt)
	for i := range t.Steps {
		s := &t.Steps[i]
		step := core.StepView{
			Name: s.Name, Kind: core.StepKind(s.Kind), Agent: s.Agent, When: s.When, Optional: s.Optional,
			Status: s.Status, Attempt: s.Attempt, Code: s.Code, Error: s.Error, Result: s.Result, Ask: s.Ask, AskNeeded: s.AskNeeded, KeyUntil: read(s.KeyUntil), At: read(s.At), By: s.By,
		}
		if c := s.Children; c != nil {
			step.Child, step.Count = c.Type, c.Count
			step.Children = core.ChildCounts{Born: c.Born, Running: c.Running, Done: c.Processed, Undone: c.Undone, Error: c.Error}
		}
		if u := s.Undo; u != nil {
			step.Undo = core.Tries{Attempt: u.Attempt, Code: u.Code, Error: u.Error, At: read(u.At), By: u.By}
		}
		v.Steps = append(v.Steps, step)
	}
	return v, err
}

package wire

import (
	"encoding/json"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/taskform"
)

// The words of duly.ask.<word> that read tasks.
const (
	askGet  = "get"
	askList = "list"
)

// Limits of duly.ask.list: listDefault where nothing is said.
const (
	listDefault    = 100
	listMax        = 1000
	cursorBytesMax = 512
)

// Query is a request to read one task, or a page of a list.
type Query struct {
	Type string
	ID   string      // of duly.ask.get; empty: of a list
	List core.Filter // of duly.ask.list
}

// queryJSON is the payload of duly.ask.get and duly.ask.list.
type queryJSON struct {
	V     int    `json:"v"`
	Type  string `json:"type,omitempty"`
	ID    string `json:"id,omitempty"`
	State string `json:"state,omitempty"`
	Label string `json:"label,omitempty"` // key=value
	Limit int    `json:"limit,omitempty"`
	After string `json:"after,omitempty"`
}

// GetRequest is the subject and the payload that ask for one task.
func (n Names) GetRequest(taskType, id string) (subject string, data []byte, err error) {
	data, err = json.Marshal(queryJSON{V: Version, Type: taskType, ID: id})
	return n.AskTypeSubject(askGet, taskType), data, err
}

// ListRequest is the subject and the payload that ask for a page of a list.
func (n Names) ListRequest(f core.Filter) (subject string, data []byte, err error) {
	data, err = json.Marshal(queryJSON{V: Version, Type: f.Type, State: string(f.State), Label: f.Label, Limit: f.Limit, After: f.After})
	if core.CheckName("type", f.Type) == nil { // another one is refused where it is asked for
		return n.AskTypeSubject(askList, f.Type), data, err
	}
	return n.AskSubject(askList), data, err
}

// IsQuery reports whether a subject of duly.ask.<word> or duly.ask.<word>.<type> reads
// tasks: DecodeQuery reads its requests, DecodeAsk all others.
func (n Names) IsQuery(subject string) bool {
	word, _, ok := n.cutAsk(subject)
	return ok && (word == askGet || word == askList)
}

var listStates = []core.State{
	core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndoing, core.StateUndone, core.StateError,
}

// DecodeQuery reads a request to read tasks. Errors wrap ErrUndecodable or core.ErrName, or
// say that the payload asks about another type than its subject.
func (n Names) DecodeQuery(subject string, data []byte) (Query, error) {
	var j queryJSON
	if err := decodeOf("request to read", data, &j, &j.V); err != nil {
		return Query{}, err
	}
	word, taskType, _ := n.cutAsk(subject)
	var err error
	if j.Type, err = askedType(subject, taskType, j.Type); err != nil {
		return Query{}, err
	}
	if word == askGet {
		if err := core.CheckName("type", j.Type); err != nil {
			return Query{}, err
		}
		return Query{Type: j.Type, ID: j.ID}, core.CheckTaskID(j.ID)
	}
	f := core.Filter{Type: j.Type, State: core.State(j.State), Label: j.Label, Limit: j.Limit, After: j.After}
	if f.Limit == 0 {
		f.Limit = listDefault
	}
	switch {
	case f.Type != "" && core.CheckName("type", f.Type) != nil:
		return Query{}, core.CheckName("type", f.Type)
	case f.State != "" && !slices.Contains(listStates, f.State):
		return Query{}, fmt.Errorf("%w: state is %q, want one of %v", ErrUndecodable, Short(j.State), listStates)
	case f.Limit < 1 || f.Limit > listMax:
		return Query{}, fmt.Errorf("%w: limit is %d, want 1 to %d", ErrUndecodable, f.Limit, listMax)
	case len(f.After) > cursorBytesMax:
		return Query{}, fmt.Errorf("%w: cursor has %d bytes, the limit is %d", ErrUndecodable, len(f.After), cursorBytesMax)
	}
	if f.Label != "" {
		if _, err := core.ParseLabel(f.Label); err != nil {
			return Query{}, fmt.Errorf("%w: %w", ErrUndecodable, err)
		}
	}
	return Query{List: f}, nil
}

// viewOf is a task as it came.
func viewOf(t *taskform.Task) (core.View, error) {
	v, err := t.View()
	if err != nil {
		return v, fmt.Errorf("%w: task %s: %w", ErrUndecodable, Short(t.ID), err)
	}
	return v, nil
}

// DecodeTask reads the answer to duly.ask.get. Errors: a *RefusedError, or they wrap
// ErrUndecodable.
func DecodeTask(data []byte) (core.View, error) {
	var j struct {
		taskform.Task
		refusedJSON
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return core.View{}, fmt.Errorf("%w: task: %w", ErrUndecodable, err)
	}
	if err := j.refused(); err != nil {
		return core.View{}, err
	}
	if j.ID == "" || j.State == "" {
		return core.View{}, fmt.Errorf("%w: task: %s", ErrUndecodable, Quote(data))
	}
	return viewOf(&j.Task)
}

// DecodePage is DecodeTask for duly.ask.list.
func DecodePage(data []byte) (core.Page, error) {
	var j struct {
		Tasks []taskform.Task `json:"tasks"`
		Next  string          `json:"next"`
		refusedJSON
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return core.Page{}, fmt.Errorf("%w: list: %w", ErrUndecodable, err)
	}
	if err := j.refused(); err != nil {
		return core.Page{}, err
	}
	if j.Tasks == nil {
		return core.Page{}, fmt.Errorf("%w: list: %s", ErrUndecodable, Quote(data))
	}
	page := core.Page{Next: j.Next, Tasks: make([]core.View, len(j.Tasks))}
	for i := range j.Tasks {
		var err error
		if page.Tasks[i], err = viewOf(&j.Tasks[i]); err != nil {
			return core.Page{}, err
		}
	}
	return page, nil
}

// refusedJSON is a refusal in an answer.
type refusedJSON struct {
	Error *APIError `json:"error"`
	Task  string    `json:"task"`
	Retry int64     `json:"retry_ms"`
}

func (j *refusedJSON) refused() error {
	if j.Error == nil {
		return nil
	}
	return &RefusedError{APIError: *j.Error, Task: j.Task, Retry: planform.Milliseconds(j.Retry)}
}

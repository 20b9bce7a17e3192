package duly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/wire"
)

// ErrNotFound is what [Client.Get] answers about an id that is no task of the type, by
// errors.Is. A task that was accepted a moment ago is found once its owner has stored it.
var ErrNotFound = errors.New("not found")

// Task is what the server knows of a task.
type Task struct {
	ID          string
	Type        string
	PlanVersion int64
	Partition   int
	State       State
	Reason      string // why it is where it is; empty where nothing went wrong
	FailedStep  string // the step whose failure is the reason, if one's is; empty in a list
	Failures    int    // of all steps, so far
	CompleteBy  time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
	EndedAt     time.Time       // zero: it has not ended
	StartAt     time.Time       // nothing of it begins before; zero: at once
	Input       json.RawMessage // empty in a list, when forgotten, and where a message could not hold it
	Steps       []TaskStep      // in the plan's order; empty in a list, and when forgotten
	Result      json.RawMessage // of a processed task whose plan has one; empty in a list, and when forgotten

	hash string // of type and input, as core.HashInput; may be empty
}

// TaskStep is one step of a [Task].
type TaskStep struct {
	Name      string
	Agent     string
	Status    string // waiting, signalled, running, done, failed, undoing, undone, gave_up …
	Attempt   int    // of its do, as all to By
	Code      int    // of its last failure
	Error     string // of its last failure
	Result    json.RawMessage
	At        time.Time // of the last news
	Ask       string    // of a signal without its answer: the token of what it asks, see [Answer.To]
	AskNeeded bool      // an answer without that token is refused
	KeyUntil  time.Time // of a call that is not over: until when its service remembers the key; zero: none was used
	By        string    // who it is of: <instance>@<agent>, the agent alone, a node, a person
	Undo      TaskTries // zero: its undo has not begun
}

// TaskTries are the attempts of the undo of a [TaskStep].
type TaskTries struct {
	Attempt int
	Code    int    // of its last failure
	Error   string // of its last failure
	At      time.Time
	By      string
}

// Filter chooses the tasks of [Client.List]; its zero value takes all.
type Filter struct {
	Type  string
	State State  // one that a stored task can be in
	Limit int    // 1 to 1000; 0: 100
	After string // [Page.Next] of the page before
}

// Page is one page of [Client.List]. It may hold fewer tasks than the limit although
// there are more.
type Page struct {
	Tasks []Task
	Next  string // see [Filter]; empty: this was the last page
}

// Get reads one task. Errors: [ErrNotFound]; names outside their alphabet, as an
// [ErrRefused]; of a client with a codec, what does not decode: the task is returned beside the error, with that payload
// as it is stored. While the server does not answer it tries again, until ctx ends
// ([ErrTimeout]).
func (c *Client) Get(ctx context.Context, typ, id string) (Task, error) {
	what := operation{"get", fmt.Sprintf("task %s of type %s", id, typ)}
	if err := checkTask(typ, id); err != nil {
		return Task{}, what.failed(err)
	}
	var task Task
	err := persist(ctx, c.clock, what, func(ctx context.Context) error {
		var err error
		task, err = c.get(ctx, typ, id)
		return err
	})
	if err != nil || c.codec == nil {
		return task, err
	}
	if err = c.decoded(&task); err != nil {
		err = what.failed(err)
	}
	return task, err
}

// decoded decodes the payloads of a task.
func (c *Client) decoded(t *Task) error {
	var failed []error
	take := func(step string, payload *json.RawMessage) {
		data, err := decode(c.codec, Place{t.Type, t.ID, step}, *payload)
		if err != nil {
			failed = append(failed, err)
			return
		}
		*payload = data
	}
	handedOn := t.handedOn()
	take("", &t.Input)
	for i := range t.Steps {
		take(t.Steps[i].Name, &t.Steps[i].Result)
	}
	if handedOn != nil {
		t.Result = *handedOn
	}
	return errors.Join(failed...)
}

// handedOn is the payload that the task's own result is, as it is stored; nil: it is none of them. The expression that makes the
// result is of the server, which sees what a codec made.
func (t *Task) handedOn() *json.RawMessage {
	for i := range t.Steps {
		if quickjson.Same(t.Steps[i].Result, t.Result) {
			return &t.Steps[i].Result
		}
	}
	if quickjson.Same(t.Input, t.Result) {
		return &t.Input
	}
	return nil
}

// get asks once. Payloads are as they are stored.
func (c *Client) get(ctx context.Context, typ, id string) (Task, error) {
	subject, data, err := c.names.GetRequest(typ, id)
	if err != nil {
		return Task{}, err
	}
	if data, err = c.request(ctx, subject, nil, data); err != nil {
		return Task{}, err
	}
	view, err := wire.DecodeTask(data)
	if refused, ok := errors.AsType[*wire.RefusedError](err); ok && refused.Code == 404 {
		return Task{}, ErrNotFound
	}
	if err != nil {
		return Task{}, refusalOf(typ, id, err)
	}
	return taskOf(&view), nil
}

// List reads one page of tasks, newest first within each partition. Errors: a filter
// that cannot be, as an [ErrRefused]. While the server does not answer it tries again,
// until ctx ends ([ErrTimeout]).
func (c *Client) List(ctx context.Context, filter Filter) (Page, error) {
	var page Page
	err := persist(ctx, c.clock, operation{"list", "tasks"}, func(ctx context.Context) error {
		subject, data, err := c.names.ListRequest(core.Filter{Type: filter.Type, State: core.State(filter.State), Limit: filter.Limit, After: filter.After})
		if err != nil {
			return err
		}
		if data, err = c.request(ctx, subject, nil, data); err != nil {
			return err
		}
		views, err := wire.DecodePage(data)
		if refused, ok := errors.AsType[*wire.RefusedError](err); ok && core.FinalCode(refused.Code) {
			return fmt.Errorf("%w: %w", ErrRefused, &refused.APIError)
		}
		if err != nil {
			return refusalOf(filter.Type, "", err)
		}
		page = Page{Next: views.Next}
		for i := range views.Tasks {
			page.Tasks = append(page.Tasks, taskOf(&views.Tasks[i]))
		}
		return nil
	})
	return page, err
}

func taskOf(v *core.View) Task {
	t := Task{
		ID: v.ID, Type: v.Type, PlanVersion: v.PlanVersion, Partition: v.Partition, State: State(v.State), Reason: v.Reason, FailedStep: v.FailedStep,
		Failures: v.Failures, CompleteBy: timeOf(v.CompleteBy), CreatedAt: timeOf(v.CreatedAt), UpdatedAt: timeOf(v.UpdatedAt), EndedAt: timeOf(v.EndedAt), StartAt: timeOf(v.StartAt),
		Input: v.Input, Result: v.Result, hash: string(v.InputHash),
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		t.Steps = append(t.Steps, TaskStep{
			Name: s.Name, Agent: s.Agent, Status: s.Status, Attempt: s.Attempt, Code: s.Code, Error: s.Error, Result: s.Result, Ask: s.Ask, AskNeeded: s.AskNeeded,
			KeyUntil: timeOf(s.KeyUntil), At: timeOf(s.At), By: s.By,
			Undo: TaskTries{Attempt: s.Undo.Attempt, Code: s.Undo.Code, Error: s.Undo.Error, At: timeOf(s.Undo.At), By: s.Undo.By},
		})
	}
	return t
}

// timeOf leaves a time that is not there zero.
func timeOf(at core.Instant) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return at.Time()
}

// status is what a Watch tells of a task that it found in the store.
func (t *Task) status() Status {
	return Status{Task: t.ID, Type: t.Type, State: t.State, Step: t.FailedStep, Error: t.Reason, At: t.EndedAt}
}

package operate

import (
	"context"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// RoleClient is of services that submit: a client submits tasks, reads single ones and asks that one be cancelled. It
// may nothing else; operators and admins may what it may, a viewer may not.
const RoleClient Role = "client"

// Roles are those that a token can have.
var Roles = []Role{RoleClient, RoleViewer, RoleOperator, RoleAdmin}

// EventWhat is what an event tells.
type EventWhat string

// What events tell. Ends and refusals are kept for a time, and told again after Last-Event-ID; the others are told as they
// happen to those who listen then, and are in the task's journal.
const (
	EventBegun       EventWhat = "begun" // the first command of the task has left
	EventStepPassed  EventWhat = "step_passed"
	EventStepFailed  EventWhat = "step_failed" // an attempt of it; another may follow
	EventUndoBegun   EventWhat = "undo_begun"
	EventStepUndone  EventWhat = "step_undone"
	EventUndoFailed  EventWhat = "undo_failed" // an attempt of a step's undo; another may follow
	EventResubmitted EventWhat = "resubmitted"
	EventEnded       EventWhat = "ended"   // the status says how; undone: its undo has ended
	EventRefused     EventWhat = "refused" // a submission never became a task
	EventLost        EventWhat = "lost"    // so many steps were more than are told at a time; ends are never among them
)

// EventWhats are all of them.
var EventWhats = []EventWhat{EventBegun, EventStepPassed, EventStepFailed, EventUndoBegun, EventStepUndone, EventUndoFailed, EventResubmitted, EventEnded, EventRefused, EventLost}

// Kept reports whether such events can be told again.
func (w EventWhat) Kept() bool { return w == EventEnded || w == EventRefused }

// Event is one thing that happened to a task, as the event stream tells it.
type Event struct {
	ID        string     `json:"-"` // its place in the stream, for going on after it; empty: the event is not kept
	What      EventWhat  `json:"event"`
	Type      string     `json:"type"`
	Task      string     `json:"id"`
	Status    core.State `json:"status"`
	Partition int        `json:"partition"`
	Seq       int64      `json:"seq,omitempty"` // journal row that it is about
	End       int64      `json:"end,omitempty"` // of an ending: its number within the partition
	Step      string     `json:"step,omitempty"`
	Attempt   int        `json:"attempt,omitempty"`
	Labels    string     `json:"labels,omitempty"` // key=value, joined by commas
	Error     string     `json:"error,omitempty"`
	Lost      int        `json:"lost,omitempty"` // of lost: how many
	At        time.Time  `json:"at"`
}

// EventFilter selects events. Empty fields select all.
type EventFilter struct {
	What   EventWhat
	Type   string
	Task   string // with Type only
	Status core.State
	Label  string // key=value; a submission that was refused has none
}

// Selects reports whether a filter selects an event.
func (f *EventFilter) Selects(e *Event) bool {
	return (f.What == "" || f.What == e.What) && (f.Type == "" || f.Type == e.Type) && (f.Task == "" || f.Task == e.Task) && (f.Status == "" || f.Status == e.Status) &&
		(f.Label == "" || slices.Contains(strings.Split(e.Labels, ","), f.Label))
}

// Events follows what becomes of tasks.
type Events interface {
	// Follow calls send with each event after a place, in order, until ctx ends or send fails; an empty place is now.
	// send may wait for its reader: no more than a bounded number of events is read ahead. Errors: *Refusal of a place that is not there any more, what send returned.
	Follow(ctx context.Context, after string, f EventFilter, send func(Event) error) error
}

type requestKey struct{}

// WithRequest returns a context of an HTTP request with that id, for the audit trail and the log.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestFrom returns the id of the HTTP request; empty: there is none.
func RequestFrom(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

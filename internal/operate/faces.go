package operate

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
)

// RoleClient is of services that submit: a client submits tasks, reads single ones and asks that one be cancelled. It
// may nothing else; operators and admins may what it may, a viewer may not.
const RoleClient Role = "client"

// Roles are those that a token can have.
var Roles = []Role{RoleClient, RoleViewer, RoleOperator, RoleAdmin}

// Agents knows the agents: those that the plans name, and those that are there.
type Agents interface {
	Agents(ctx context.Context) ([]Agent, error)
}

// Partitions knows who owns which partition, and asks owners to hand over. The audit entry is written before it is called.
type Partitions interface {
	Partitions(ctx context.Context) ([]Partition, error)
	// Pin keeps a partition at a node while that node lives; an empty name lifts it. Error: *Refusal.
	Pin(ctx context.Context, by Actor, partition int, node, reason string) error
	// StepDown asks the owner of a partition to hand it over. Error: *Refusal.
	StepDown(ctx context.Context, by Actor, partition int, reason string) error
}

// Event is one change of a task, as the event stream tells it.
type Event struct {
	ID        string     `json:"-"` // its place in the stream, for going on after it
	Type      string     `json:"type"`
	Task      string     `json:"id"`
	Status    core.State `json:"status"`
	Partition int        `json:"partition"`
	End       int64      `json:"end,omitempty"` // of an ending: its number within the partition
	Step      string     `json:"step,omitempty"`
	Error     string     `json:"error,omitempty"`
	At        time.Time  `json:"at"`
}

// EventFilter selects events. Empty fields select all.
type EventFilter struct {
	Type   string
	Task   string // with Type only
	Status core.State
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

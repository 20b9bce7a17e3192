package operate

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
)

// Limits of the flow.
const (
	PausesMax   = core.PausesMax   // at a time
	StepDownFor = 10 * time.Minute // how long a node that has stepped down does not own the partition again
)

// PauseView is a pause with what it holds now.
type PauseView struct {
	Pause
	Waiting Count `json:"waiting"` // parked tasks that it holds; of one for a step: of those that wait for the step's agent
	// FirstDeadline is the earliest deadline of those counted: until then none of them is undone for waiting.
	FirstDeadline time.Time `json:"first_deadline,omitzero"`
}

// PauseControl is how operators hold back what flows. Every change is in the audit trail before it is made.
type PauseControl interface {
	// SetPause begins a pause, and returns it as it is stored. Error: *Refusal.
	SetPause(ctx context.Context, by Actor, p Pause) (Pause, error)
	// LiftPause ends one; what it held is taken up again. Error: *Refusal, 404 for a pause that there is not.
	LiftPause(ctx context.Context, by Actor, id, reason string) error
	// Pauses returns all that are not over, with what waits behind each.
	Pauses(ctx context.Context) ([]PauseView, error)
}

// Partitions is how operators see partitions and move them. Every change is in the audit trail before it is made.
type Partitions interface {
	Partitions(ctx context.Context) ([]Partition, error)
	// Pin has a partition owned by a node while that node lives. Error: *Refusal, 404 of a node that is not live, unless
	// anyway.
	Pin(ctx context.Context, by Actor, partition int, node, reason string, anyway bool) error
	// Unpin forgets what operators wanted of a partition: a pin, and that its owner stepped down. Error: *Refusal.
	Unpin(ctx context.Context, by Actor, partition int, reason string) error
	// StepDown has the owner let a partition go in order, for another live node to own it for StepDownFor at least. Error:
	// *Refusal, 409 where there is no other node.
	StepDown(ctx context.Context, by Actor, partition int, reason string) error
}

// Agents is how operators see agents: those that answer now, and those that plans name or tasks wait for.
type Agents interface {
	Agents(ctx context.Context) ([]Agent, error)
}

// FlowReader is what the views of the flow read of the state store, through the connections of people who ask.
type FlowReader interface {
	// ParkedAt counts the parked tasks of each agent, by plan version, among the first CountExactMax of each partition.
	ParkedAt(ctx context.Context) (map[string][]ParkedOf, error)
	// Parked counts parked tasks of the filter among the first CountExactMax of each agent, by number.
	Parked(ctx context.Context, f ParkedFilter) (Parked, error)
	// InFlight counts the tasks that are processing or undoing by partition, up to CountExactMax each.
	InFlight(ctx context.Context) (map[int]Count, error)
	// Cursors returns the rows of all partitions.
	Cursors(ctx context.Context) ([]core.PartitionState, error)
	// Plans returns the plans that this binary can read; see schema.Store.
	Plans(ctx context.Context) ([]core.Plan, error)
}

// ParkedFilter selects parked tasks. Empty fields select all.
type ParkedFilter struct {
	Agents []string // that they wait for
	Type   string
	Label  core.Label
}

// ParkedOf is what waits of one version of a plan.
type ParkedOf struct {
	Type    string
	Version int64
	Parked
}

// Parked is what waits.
type Parked struct {
	Tasks Count
	First core.Instant // the earliest deadline of those counted; 0: there is none
}

package repair

import (
	"context"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Store is what previews and operations need of the state store; an [operate.Store] has it.
type Store interface {
	operate.OperationStore
	// Plans returns the plans that this binary can read, beside core.UnreadablePlans where there are others.
	Plans(ctx context.Context) ([]core.Plan, error)
	// Group returns one failure group by its id. Error: core.ErrNotFound.
	Group(ctx context.Context, id string) (operate.Group, error)
	// Cursors returns the rows of all partitions.
	Cursors(ctx context.Context) ([]core.PartitionState, error)
}

// Controls asks the owners of partitions.
type Controls interface {
	// Ask returns once the message is stored in the partition's control stream, with its position there. After an error
	// it may be stored or not. It is safe for concurrent use.
	Ask(ctx context.Context, partition int, c core.Control) (position uint64, err error)
}

// Hold says why a command, an undo or not, of a task's step would wait now, as a sentence; empty: it would leave.
type Hold func(t *core.Task, s *core.Step, undo bool) string

// Holds knows pauses and agents that are away.
type Holds interface {
	// Holds reads them once, for a whole rehearsal.
	Holds(ctx context.Context) (Hold, error)
}

// Joined counts the tasks that have joined an operation's failure group since its members were frozen, exactly up to
// operate.CountExactMax.
type Joined interface {
	Joined(ctx context.Context, op operate.Operation) (operate.Count, error)
}

// Leader says whether this process is the one that runs operations now.
type Leader interface{ Leads() bool }

// Load says whether the engine has more to do than it can: then operations hold back.
type Load interface{ Overloaded() bool }

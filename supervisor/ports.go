package supervisor

import (
	"context"

	"duly.dev/duly/internal/core"
)

// Store is what the supervisor reads of the state store.
type Store interface {
	// Overdue returns unfinished tasks whose bound lies before now and not before
	// since, in the order of partition, bound and number, after a place in that
	// order. A place with only its partition set is the beginning of that partition.
	Overdue(ctx context.Context, since, now core.Instant, after core.Due, limit int) ([]core.Due, error)
	// Cursors returns every partition's own row.
	Cursors(ctx context.Context) ([]core.PartitionState, error)
}

// Bus is how the supervisor asks.
type Bus interface {
	// Ask returns once the request is stored in the partition's control stream,
	// with its position there. After an error it may be stored or not.
	Ask(ctx context.Context, partition int, c core.Control) (seq uint64, err error)
}

// Lease is the leadership.
type Lease interface {
	// Renew takes or keeps the lease; held is false while another holds it.
	Renew(ctx context.Context) (held bool, err error)
	// Release gives the lease up, if it is ours, so that a successor need not
	// wait.
	Release(ctx context.Context) error
}

// Alerts is where tasks in error are read from.
type Alerts interface {
	// Errors calls take for every task that ended in error, also those told
	// while no supervisor ran, until ctx ends or reading fails. An ending is
	// acknowledged when done was called with nil for it, and for those that were
	// told with it; they come again otherwise. take calls done once, or keeps it
	// for a call soon after. Several supervisors share the endings between them.
	Errors(ctx context.Context, take func(e core.Ending, done func(error))) error
}

// Sink is where alerts go.
type Sink interface {
	// Alert tells a person. It must not wait for one.
	Alert(a Alert) error
}

package schema

import (
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// ServerError refuses a database server of a version that is not supported.
type ServerError struct{ Have, Want string }

// Error names both versions.
func (e *ServerError) Error() string {
	return fmt.Sprintf("database: %s, want %s or newer", e.Have, e.Want)
}

// Errors of a probe for room.
var (
	// ErrNoRoom: the database server's disk has no room.
	ErrNoRoom = errors.New("the database has no room on its disk")
	// ErrNotProbed: the user may not probe, or the database has no way to.
	ErrNotProbed = errors.New("the database's room cannot be probed")
)

// Probe is the birth of a task that is nothing but valid. Its number and id are none that a task has.
func Probe(partition int) core.TaskWrite {
	now := core.InstantOf(time.Now())
	return core.TaskWrite{
		Task: &core.Task{
			Partition: partition, Number: -1, ID: " probe", Type: "probe", State: core.StateProcessing, Seq: 1, CreatedAt: now, UpdatedAt: now,
		},
		Birth:   true,
		Records: []core.Record{{Seq: 1, Kind: "probe", At: now, Actor: "probe", State: core.StateProcessing, Step: -1, Next: -1}},
	}
}

package schema

import (
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
)

// ServerError refuses a database server whose version is too old.
type ServerError struct{ Have, Want string }

// Error names both versions.
func (e *ServerError) Error() string {
	return fmt.Sprintf("database: %s, want %s or newer", e.Have, e.Want)
}

// Errors of ProbeRoom.
var (
	// ErrNoRoom: the database server's disk has no room.
	ErrNoRoom = errors.New("the database has no room on its disk")
	// ErrNotProbed: the user may not probe, or the database has no way to.
	ErrNotProbed = errors.New("the database's room cannot be probed")
)

// Probe makes the birth of a task that no database should refuse, to find out whether it refuses any. Its
// number -1 and its id, which begins with a space, belong to no task.
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

package schema

import (
	"errors"
	"fmt"
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

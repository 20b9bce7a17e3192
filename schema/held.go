package schema

import (
	"errors"
	"fmt"
	"time"
)

// Held is space that a database cannot free because somebody still uses it: a reader, a replica or an old
// transaction.
type Held struct {
	// WAL is the size of the write-ahead log in bytes. Above WALMost it is a trouble.
	WAL     int64
	WALMost int64
	// Snapshot is the age of the oldest transaction that still sees deleted rows, of those that this user may
	// see.
	Snapshot time.Duration
}

// HeldFor is the age from which a snapshot is a trouble. Dumps and long questions end sooner.
const HeldFor = time.Hour

// Trouble says what is wrong, for an operator; nil: nothing.
func (h Held) Trouble() error {
	var errs []error
	if h.WAL > h.WALMost {
		errs = append(errs, fmt.Errorf("the write-ahead log has grown to %d MB: a reader that does not end, or a replica, keeps it", h.WAL>>20))
	}
	if h.Snapshot > HeldFor {
		errs = append(errs, fmt.Errorf("a transaction has been open for %v: nothing that was forgotten since is given back", h.Snapshot.Round(time.Second)))
	}
	return errors.Join(errs...)
}

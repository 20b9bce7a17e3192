package schema

import (
	"errors"
	"fmt"
	"time"
)

// Held is what others keep a database from giving back or using again. It grows until they end.
type Held struct {
	WAL      int64         // bytes of the write-ahead log
	WALMost  int64         // more than these are a trouble
	Snapshot time.Duration // age of the oldest transaction that sees the tables as they were, as far as its user may be seen
}

// HeldFor is how old a snapshot is when it is a trouble: dumps and long questions are younger.
const HeldFor = time.Hour

// Trouble is what is wrong; nil: nothing.
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

package scheduler

import (
	"errors"

	"duly.dev/duly/internal/core"
)

// order asks a committer to do something with one partition between commit cycles.
type order struct {
	kind      orderKind
	partition int
	epoch     int64         // of a loss: the ownership that was lost
	evidence  core.Evidence // of orderDoubt: what a former owner recorded
	commit    int64         // of orderOverwritten: what the store has
	why       error         // of a loss
}

// orderKind is what an order asks for. The last three are losses: the partition is forgotten, if it is still held
// under the order's epoch.
type orderKind int

const (
	orderAdopt       orderKind = iota
	orderRelease               // let it go in order
	orderLost                  // it cannot be read any more, or is another owner's
	orderDoubt                 // the same, if the takeover found less than a former owner knew
	orderOverwritten           // the same, if the store's last commit is not of the cycle that is under way
)

// bothRewound is the newer of two reasons, and the older as well if it names a stream that went back: the next takeover
// must read that one again.
func bothRewound(older, newer error) error {
	for _, stream := range []error{ErrRewound, ErrControlRewound} {
		if errors.Is(older, stream) && !errors.Is(newer, stream) {
			newer = errors.Join(newer, stream)
		}
	}
	return newer
}

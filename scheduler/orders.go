package scheduler

import (
	"errors"

	"duly.dev/duly/internal/core"
)

// order asks a committer to do something with one partition between commit cycles.
type order struct {
	kind      orderKind
	partition int
	// epoch is that of the ownership which a loss is about.
	epoch int64
	// evidence belongs to orderDoubt: what a former owner recorded.
	evidence core.Evidence
	// commit belongs to orderOverwritten: the partition's last commit in the store.
	commit int64
	// why is the reason of a loss.
	why error
}

// orderKind is what an order asks for. The last three are losses: they drop the partition if it is still held under the
// order's epoch.
type orderKind int

const (
	orderAdopt       orderKind = iota
	orderRelease               // drain it and let it go
	orderLost                  // it cannot be read any more, or is another owner's
	orderDoubt                 // a loss if the takeover found less than a former owner knew
	orderOverwritten           // a loss if the store has a commit that this committer has not made
)

// bothRewound returns the newer of two reasons, joined with any stream that the older one says went back: the
// next takeover must read that stream again.
func bothRewound(older, newer error) error {
	for _, stream := range []error{ErrRewound, ErrControlRewound} {
		if errors.Is(older, stream) && !errors.Is(newer, stream) {
			newer = errors.Join(newer, stream)
		}
	}
	return newer
}

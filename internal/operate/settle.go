package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/say"
)

// When an entry without an outcome is settled.
const (
	settleAfter    = DeskMax + 3*deskTrail // no one works on it any more
	settleKeyAfter = 15 * time.Minute      // nor asks again by its key, which is done again until settleAfter before
	settlePage     = 500
)

// Outcomes of entries whose process ended before it wrote them.
var (
	WasMade  = outcomeDone
	NotMade  = outcomeFailed + say.Of("trail.not-made")
	NotDone  = outcomeRefused + say.Of("trail.not-done")
	NotKnown = "unknown: " + say.Of("trail.not-known")
)

// Entry is the entry of the change that a context is of.
type Entry struct {
	Number int64
	Done   bool // the store has written with a change that it is done
}

type entryKey struct{}

// EntryOf returns the entry of the change that writes with a context; nil: it is of no change of [Desk.Change].
func EntryOf(ctx context.Context) *Entry {
	e, _ := ctx.Value(entryKey{}).(*Entry)
	return e
}

// Apart is a context for what must be written before a change, and is not the change itself.
func Apart(ctx context.Context) context.Context {
	return context.WithValue(ctx, entryKey{}, (*Entry)(nil))
}

// Settled says that an entry has its outcome already, which it is. A change of such an entry is not made any more.
type Settled string

// Error implements error.
func (s Settled) Error() string { return say.Of("trail.settled", "outcome", string(s)) }

// IsSettled reports whether an outcome is one: an entry keeps it then.
func IsSettled(outcome string) bool {
	return outcome != "" && outcome != outcomeOpen && !strings.HasPrefix(outcome, Asked)
}

// Unsettled are the entries that have no outcome yet.
type Unsettled interface {
	// Unsettled returns up to limit of them after a number, by number.
	Unsettled(ctx context.Context, after int64, limit int) ([]AuditEntry, error)
}

// Place is where an entry says that a request is in its owner's stream; false: it does not say so.
func (e *AuditEntry) Place() (partition int, position uint64, ok bool) {
	n, _ := fmt.Sscanf(e.Outcome, Asked+"%d.%d", &partition, &position)
	return partition, position, n == 2
}

// Settle gives entries their outcome that were left without one, by a process that ended or by a database that did not answer.
// look says what became of one; nothing: it is not known yet. Any number of nodes may settle at once.
func (d *Desk) Settle(ctx context.Context, open Unsettled, look func(context.Context, *AuditEntry) (outcome string, err error)) error {
	var failed error
	for after, more := int64(0), true; more; {
		some, err := open.Unsettled(ctx, after, settlePage)
		if err != nil {
			return errors.Join(failed, err)
		}
		more = len(some) == settlePage
		for i := range some {
			e := &some[i]
			after = e.Number
			if d.now().Before(e.At.Add(e.Worked())) {
				continue
			}
			outcome, err := look(ctx, e)
			if err == nil && outcome != "" {
				err = d.trail.SetOutcome(ctx, e.Number, outcome)
			}
			if _, other := errors.AsType[Settled](err); err != nil && !other {
				failed = errors.Join(failed, fmt.Errorf("entry %d of the audit trail: %w", e.Number, err))
			}
		}
	}
	return failed
}

// Worked is how long a node may work on an entry without an outcome.
func (e *AuditEntry) Worked() time.Duration {
	switch {
	case strings.HasPrefix(e.Outcome, Asked): // its owner has it
		return 0
	case e.Key != "":
		return settleKeyAfter
	}
	return settleAfter
}

package pgledger

import (
	"context"
	"fmt"
	"time"
)

// Forget removes the keys whose last change is longer ago than olderThan, a thousand a transaction, and returns how many
// they were. It ends with ctx, and the next one goes on. Call it now and then, from one process or from all.
//
// A key must be kept for as long as a command of it can come: the longest deadline of the tasks, the grace of their plans,
// and how long their undos are tried (a day, unless the plan says). A do whose tombstone was forgotten would take effect
// again, and one whose row was forgotten is absent to a probe. Error: less than ForgetLeast.
func (l *Ledger[T]) Forget(ctx context.Context, olderThan time.Duration) (forgotten int64, err error) {
	if olderThan < ForgetLeast {
		return 0, fmt.Errorf("ledger: forget what is older than %v, want %v or more", olderThan, ForgetLeast)
	}
	for {
		var n int64
		err := l.again(ctx, func() (err error) {
			n, err = l.db.alone(ctx, l.text.forget, olderThan.Microseconds(), forgetRows)
			return err
		})
		if err != nil {
			return forgotten, fmt.Errorf("ledger: forget: %w", err)
		}
		if forgotten += n; n < forgetRows {
			return forgotten, nil
		}
	}
}

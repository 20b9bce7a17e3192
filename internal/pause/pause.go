// Package pause waits between two tries, or until there is no reason to try again.
package pause

import (
	"context"
	"time"
)

// For waits for d and returns nil, or returns the error of ctx when that ends before or
// has ended already. It does not wait when d is 0 or less.
func For(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

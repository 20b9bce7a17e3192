package duly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// How a client persists: the pause before the nth next try is drawn between
// nothing and pauseFirst doubled n times, at most pauseMost. One try may take
// tryMax, so that a lost request does not use up the caller's whole time.
const (
	pauseFirst = 50 * time.Millisecond
	pauseMost  = 2 * time.Second
	tryMax     = 5 * time.Second
	hintMax    = 5 * time.Minute // of a server's wish: none promises a time beyond it
)

// persist calls try until it succeeds, fails for good or ctx ends. Trying again
// is safe because the caller chose the id.
func persist(ctx context.Context, clock agents.Time, what operation, try func(context.Context) error) error {
	return (*turn)(nil).persist(ctx, clock, what, try)
}

// persist is that of a submission, which waits for its turn before each try.
func (t *turn) persist(ctx context.Context, clock agents.Time, what operation, try func(context.Context) error) error {
	var last, unclear error
	for n := 1; ; n++ {
		if held := t.wait(ctx, clock); held != nil {
			last = cmp.Or(last, held)
		}
		if ctx.Err() == nil {
			err := once(ctx, clock, try)
			t.heard(clock.Now(), err)
			if err == nil {
				return nil
			}
			if refused, is := errors.AsType[*SubmitError](err); is && refused.late && unclear != nil {
				return what.failed(fmt.Errorf("%w: an earlier try may have been taken (%w), and now it is refused: %s", ErrTimeout, unclear, refused.Description))
			}
			if !worthAgain(err) {
				return what.failed(err)
			}
			if mayBeTaken(err) {
				unclear = err
			}
			// A try that ctx cut short says less than the answer before it.
			if last == nil || ctx.Err() == nil {
				last = err
			}
			pause := core.Backoff(pauseFirst, pauseMost, n, clock.Float64())
			if clock.Sleep(ctx, hint(last)+pause) == nil {
				continue
			}
		}
		if last == nil {
			return what.failed(fmt.Errorf("%w: %w", ErrTimeout, ctx.Err()))
		}
		return what.failed(fmt.Errorf("%w: %w: last try: %w", ErrTimeout, ctx.Err(), last))
	}
}

// operation is what a caller asked for: "submit", and "task a of type order".
type operation struct{ verb, object string }

// failed wraps why it failed, and names the object unless the reason does.
func (o operation) failed(err error) error {
	if _, named := errors.AsType[*SubmitError](err); named {
		return fmt.Errorf("%s: %w", o.verb, err)
	}
	return fmt.Errorf("%s %s: %w", o.verb, o.object, err)
}

func once(ctx context.Context, clock agents.Time, try func(context.Context) error) error {
	ctx, cancel := clock.WithTimeout(ctx, tryMax)
	defer cancel()
	return try(ctx)
}

// hint is how long the server asked to wait: the jitter comes on top, so that
// those refused together do not come back together.
func hint(err error) time.Duration {
	if refused, ok := errors.AsType[*SubmitError](err); ok {
		return max(0, min(refused.RetryAfter, hintMax))
	}
	return 0
}

// finalErrors are those that no waiting heals.
var finalErrors = []error{
	ErrRefused, ErrNotFound, errAnswer,
	nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrInvalidConnection,
	nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrPermissionViolation, nats.ErrAuthorization,
	nats.ErrHeadersNotSupported,
}

// mayBeTaken reports whether a try that failed so may have been taken: it was not answered, or the answer leaves that open.
func mayBeTaken(err error) bool {
	if refused, is := errors.AsType[*SubmitError](err); is {
		return refused.open
	}
	return !errors.Is(err, nats.ErrNoResponders)
}

// errAnswer: the answer is not in the wire's version.
var errAnswer = errors.New("answer not understood")

func worthAgain(err error) bool {
	for _, final := range finalErrors {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

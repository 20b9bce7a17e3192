package operate

import (
	"context"
	"errors"
)

type actorKey struct{}

// ErrEnded is the cause of the end of a request's context when the credentials of its actor hold no more.
var ErrEnded = errors.New("the token or session has ended")

// WithActor returns a context of a request by that actor.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ForAll returns a context of what is read for all who ask, whoever was first: no one's request.
func ForAll(ctx context.Context) context.Context { return context.WithValue(ctx, actorKey{}, nil) }

// ActorFrom returns who a request is by; false: it was not authenticated.
func ActorFrom(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}

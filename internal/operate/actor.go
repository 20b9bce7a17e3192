package operate

import (
	"context"
	"errors"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
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

// IDs is what the ids begin with that the actor submits; empty: any are its own to take.
func (a Actor) IDs() string {
	bound, _ := core.ParseLabels(a.Labels) // those of a token were checked when it was made
	for _, l := range bound {
		if l.Key == IDsLabel {
			return l.Value
		}
	}
	return ""
}

// Submits refuses an id, or what ids begin with, that the actor does not submit.
func (a Actor) Submits(id string) *Refusal {
	ids := a.IDs()
	if strings.HasPrefix(id, ids) {
		return nil
	}
	return &Refusal{Code: 403, Detail: say.Of("refuse.id-begins", "id", core.QuoteShort(id), "name", core.QuoteShort(a.Name), "ids", ids)}
}

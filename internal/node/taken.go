package node

import (
	"context"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// takenMax bounds the looks at the state store of one door at a time: the store has few
// connections for those who only ask.
const takenMax = 16

// taken is ingest.Taken on the state store.
type taken struct {
	*bounded
	ctx   context.Context
	store existing
}

// existing is what of the state store tells which ids are tasks.
type existing interface {
	Existing(ctx context.Context, partition int, ids []string) ([]core.Existing, error)
}

func newTaken(ctx context.Context, store existing) *taken {
	return &taken{bounded: newBounded(takenMax), ctx: ctx, store: store}
}

// Look implements ingest.Taken; wait waits for all that have begun.
func (t *taken) Look(partition int, id string, done func(*core.Existing, error)) bool {
	return t.try(func() {
		ctx, cancel := context.WithTimeout(t.ctx, ingest.DefaultLookMax)
		defer cancel()
		found, err := t.store.Existing(ctx, partition, []string{id})
		if err != nil || len(found) == 0 {
			done(nil, err)
			return
		}
		done(&found[0], nil)
	})
}

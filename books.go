package duly

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// Effect is one effect of a step that stands in a service. What an undo has taken back is none.
type Effect struct {
	Key   string    // the step's, <task>/<step>/<round>: see [Call]
	Times int       // how often it was made: 1, unless the service did not go by the key
	At    time.Time // when
}

// Books is what a service knows of its effects. `duly books` compares it with the journal, and names what does not
// agree.
type Books interface {
	// Since returns effects that were made at or after a time, in any order that stays the same from page to page: at
	// most limit of them, and what to ask for the next page with; empty: there is none.
	Since(ctx context.Context, since time.Time, after string, limit int) (effects []Effect, next string, err error)
	// Find returns the effects of those keys that stand; the others are left out. There are at most 1,000 keys.
	Find(ctx context.Context, keys []string) ([]Effect, error)
}

// WithBooks makes the agent answer for the books of one agent name, on duly.books.<name>. Give it once for each name
// whose service keeps books.
func WithBooks(name string, books Books) AgentOption {
	return agentOption(func(c *agentConfig) {
		switch {
		case c.err != nil:
		case books == nil:
			c.err = fmt.Errorf("WithBooks(%q): no books", name)
		default:
			if c.err = core.CheckAgent(name); c.err == nil {
				c.books = append(c.books, agentBooks{name, books})
			}
		}
	})
}

// agentBooks are the books of one agent name.
type agentBooks struct {
	name  string
	books Books
}

// serve answers until the subscription is stopped.
func (b agentBooks) serve(ctx context.Context, conn *natsbus.Conn) (*natsbus.Subscription, error) {
	return conn.ServeBooks(ctx, b.name, func(ctx context.Context, q wire.BooksQuestion) (wire.BooksAnswer, error) {
		effects, next, err := b.look(ctx, q)
		if err != nil {
			return wire.BooksAnswer{}, err
		}
		if len(effects) > wire.BooksMax {
			return wire.BooksAnswer{}, fmt.Errorf("books have %d effects in one page, the limit is %d", len(effects), wire.BooksMax)
		}
		answer := wire.BooksAnswer{Next: next}
		for _, e := range effects {
			answer.Effects = append(answer.Effects, wire.BooksEffect(e))
		}
		return answer, nil
	})
}

// look asks the books. A panic is their error, so that it ends no command of the agent.
func (b agentBooks) look(ctx context.Context, q wire.BooksQuestion) (effects []Effect, next string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("books of agent %s: panic: %v", b.name, v)
		}
	}()
	if len(q.Keys) > 0 {
		effects, err = b.books.Find(ctx, q.Keys)
	} else {
		effects, next, err = b.books.Since(ctx, q.Since, q.After, q.Limit)
	}
	if err != nil {
		_ = err.Error() // an error that panics when it is asked does so here
	}
	return effects, next, err
}

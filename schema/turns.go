package schema

import (
	"context"
	"database/sql"
	"sync"

	"duly.dev/duly/internal/operate"
)

// AskingEach is how many questions of one actor are answered at a time: half of the connections that there are for those
// who ask, so that one alone keeps no other waiting.
const AskingEach = 2

// actorSlots lets each actor have AskingEach questions answered at a time; its others wait. What the program asks for itself, and
// everyone where all are one actor, waits for a connection alone. It is safe for concurrent use.
type actorSlots struct {
	mu sync.Mutex
	of map[string]*actorSlot
}

// actorSlot is an actor's.
type actorSlot struct {
	slots chan struct{}
	users  int // that have a place, or wait for one
}

// take waits for a place; leave, which may be called again, gives it back. Error: that of ctx, which has ended.
func (t *actorSlots) take(ctx context.Context) (leave func(), err error) {
	by, known := operate.ActorFrom(ctx)
	if t == nil || !known || by.Open {
		return func() {}, nil
	}
	name := string(by.Role) + " " + by.Name
	t.mu.Lock()
	mine := t.of[name]
	if mine == nil {
		mine = &actorSlot{slots: make(chan struct{}, AskingEach)}
		t.of[name] = mine
	}
	mine.users++
	t.mu.Unlock()
	gone := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.of, name)
		}
	}
	select {
	case mine.slots <- struct{}{}:
		return sync.OnceFunc(func() { <-mine.slots; gone() }), nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}

// rowSet are the rows of a query.
type rowSet interface {
	Next() bool
	Scan(to ...any) error
	Err() error
	Close() error
}

// slotRows are rows whose reader has a place until their end.
type slotRows struct {
	*sql.Rows
	leave func()
}

// Next is sql.Rows.Next: after the last row the connection is free.
func (t slotRows) Next() bool {
	if t.Rows.Next() {
		return true
	}
	t.leave()
	return false
}

// Close closes the rows.
func (t slotRows) Close() error {
	defer t.leave()
	return t.Rows.Close()
}

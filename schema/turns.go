package schema

import (
	"context"
	"database/sql"
	"sync"

	"duly.dev/duly/internal/operate"
)

// AskingEach is how many questions of one actor are answered at a time. It is half of the connections for
// people, so that one actor alone keeps nobody waiting.
const AskingEach = 2

// actorSlots lets AskingEach questions of each actor through at a time; further ones wait. Questions of the
// program itself, and all questions where sign-in is off and everyone is the same actor, pass freely. It is
// safe for concurrent use.
type actorSlots struct {
	mu sync.Mutex
	of map[string]*actorSlot
}

// actorSlot is one actor's.
type actorSlot struct {
	slots chan struct{}
	// users counts the questions that have a slot or wait for one; the entry goes with the last.
	users int
}

// take waits for a slot of ctx's actor. leave gives it back, once, however often it is called. Error: ctx has
// ended.
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
	// Counted before it waits, so that the entry stays until everyone who waits has left.
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

// rowSet is the rows of a query: *sql.Rows, with or without a slot.
type rowSet interface {
	Next() bool
	Scan(to ...any) error
	Err() error
	Close() error
}

// slotRows are rows whose reader has one of a bounded number of connections until it has read or closed them.
type slotRows struct {
	*sql.Rows
	leave func()
}

// Next is sql.Rows.Next. After the last row it gives the slot back: the connection is free by then.
func (t slotRows) Next() bool {
	if t.Rows.Next() {
		return true
	}
	t.leave()
	return false
}

// Close closes the rows and gives the slot back.
func (t slotRows) Close() error {
	defer t.leave()
	return t.Rows.Close()
}

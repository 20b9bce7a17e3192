package operate

import (
	"context"
	"time"
)

// SessionsMax bounds the sessions of an installation; only who has signed in has one.
const SessionsMax = 10_000

// Session is a session of a person who has signed in. Its id is a hash of what the browser shows.
type Session struct {
	ID      string
	Data    []byte
	Expires time.Time
}

// SessionStore keeps sessions, so that every node knows them.
type SessionStore interface {
	// PutSession stores one, and forgets some that are over. Error: *Refusal, 429 of too many.
	PutSession(ctx context.Context, s Session, now time.Time) error
	// SessionByID returns one, also one that is over. Error: core.ErrNotFound.
	SessionByID(ctx context.Context, id string) (Session, error)
	// DeleteSession ends one. One that is not there is no error.
	DeleteSession(ctx context.Context, id string) error
}

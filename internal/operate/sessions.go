package operate

import (
	"context"
	"time"
)

// The bounds of sessions; only who has signed in has one.
const (
	SessionsMax  = 10_000 // of an installation
	SessionsEach = 10     // of a token or a person
)

// Session is a session of a person who has signed in. Its id is a hash of what the browser shows.
type Session struct {
	ID      string
	Owner   string // the id of a token, or PersonOwner
	Data    []byte
	Expires time.Time
}

// PersonOwner is the owner of the sessions of a person whom an identity provider names; no id of a token looks like it.
func PersonOwner(name string) string { return "person:" + name }

// SessionStore keeps sessions, so that every node knows them.
type SessionStore interface {
	// PutSession stores one, and forgets some that are over. Error: *Refusal, 429 of too many, in all or of one owner.
	PutSession(ctx context.Context, s Session, now time.Time) error
	// SessionByID returns one, also one that is over. Error: core.ErrNotFound.
	SessionByID(ctx context.Context, id string) (Session, error)
	// SessionIDs returns the ids of all, also of those that are over.
	SessionIDs(ctx context.Context) ([]string, error)
	// DeleteSession ends one. One that is not there is no error.
	DeleteSession(ctx context.Context, id string) error
}

package auth

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// session is one as it was read.
type session struct {
	data    []byte
	expires time.Time
}

// sharedSessions is scs.Store in the state store: a session is of all nodes, and one that ended at another is over here
// within cacheFor.
type sharedSessions struct {
	*recent[session]
	store operate.SessionStore
}

func newSharedSessions(store operate.SessionStore, now func() time.Time, log *slog.Logger) *sharedSessions {
	fetch := func(ctx context.Context, id string) (session, error) {
		is, err := store.SessionByID(ctx, id)
		return session{is.Data, is.Expires}, err
	}
	return &sharedSessions{newRecent("session", fetch, store.SessionIDs, now, log), store}
}

// FindCtx implements scs.CtxStore. Errors: errTooMany, errStore.
func (s *sharedSessions) FindCtx(ctx context.Context, id string) ([]byte, bool, error) {
	found, err := s.get(ctx, id)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case !s.now().Before(found.expires):
		return nil, false, nil
	}
	return found.data, true, nil
}

// ownerKey is where the context of a session that begins has its owner.
type ownerKey struct{}

// CommitCtx implements scs.CtxStore.
func (s *sharedSessions) CommitCtx(ctx context.Context, id string, data []byte, expires time.Time) error {
	owner, _ := ctx.Value(ownerKey{}).(string)
	if err := s.store.PutSession(ctx, operate.Session{ID: id, Owner: owner, Data: data, Expires: expires}, s.now()); err != nil {
		return err
	}
	now := s.now()
	s.put(id, entry[session]{value: session{data, expires}, read: now, tried: now})
	return nil
}

// DeleteCtx implements scs.CtxStore.
func (s *sharedSessions) DeleteCtx(ctx context.Context, id string) error {
	s.drop(id)
	return s.store.DeleteSession(ctx, id)
}

// Find implements scs.Store, which asks FindCtx instead.
func (s *sharedSessions) Find(id string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), id)
}

// Commit implements scs.Store, which asks CommitCtx instead.
func (s *sharedSessions) Commit(id string, data []byte, expires time.Time) error {
	return s.CommitCtx(context.Background(), id, data, expires)
}

// Delete implements scs.Store, which asks DeleteCtx instead.
func (s *sharedSessions) Delete(id string) error { return s.DeleteCtx(context.Background(), id) }

package auth

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// sharedSessions is scs.Store in the state store: a session is of all nodes, and one that ended at another is over here
// within cacheFor. While the store is away a session that was good counts for up to staleFor, as a token does.
type sharedSessions struct {
	store operate.SessionStore
	now   func() time.Time
	log   *slog.Logger
	flat  singleflight.Group
	limit *rate.Limiter // lookups of what is not in memory

	mu    sync.Mutex
	known map[string]knownSession
}

// knownSession is a session as it was read.
type knownSession struct {
	session
	read, tried time.Time
}

func newSharedSessions(store operate.SessionStore, now func() time.Time, log *slog.Logger) *sharedSessions {
	return &sharedSessions{store: store, now: now, log: log, limit: rate.NewLimiter(unknownRate, unknownBurst), known: map[string]knownSession{}}
}

// FindCtx implements scs.CtxStore. Errors: errTooMany, errStore.
func (s *sharedSessions) FindCtx(ctx context.Context, id string) ([]byte, bool, error) {
	now := s.now()
	s.mu.Lock()
	known, ok := s.known[id]
	s.mu.Unlock()
	if !ok || now.Sub(known.tried) >= cacheFor {
		if !ok && !s.limit.AllowN(now, 1) {
			return nil, false, errTooMany
		}
		// Not by the context of the request: others wait for the same answer.
		found, err, _ := s.flat.Do(id, func() (any, error) {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupMax)
			defer cancel()
			return s.read(bounded, id, known, ok)
		})
		if err != nil {
			return nil, false, err
		}
		known = found.(knownSession)
	}
	if known.data == nil || !now.Before(known.expires) {
		return nil, false, nil
	}
	return known.data, true, nil
}

// read reads a session; one that is not there has no data, and is not kept: who guesses fills no memory.
func (s *sharedSessions) read(ctx context.Context, id string, known knownSession, had bool) (knownSession, error) {
	now := s.now()
	is, err := s.store.SessionByID(ctx, id)
	switch {
	case errors.Is(err, core.ErrNotFound):
		s.drop(id)
		return knownSession{}, nil
	case err != nil && had && now.Sub(known.read) < staleFor:
		s.log.Debug("a session is taken as it was read before", "error", err)
		known.tried = now
		s.keep(id, known)
		return known, nil
	case err != nil:
		s.log.Debug("a session could not be looked up", "error", err)
		return knownSession{}, errStore
	}
	known = knownSession{session{is.Data, is.Expires}, now, now}
	s.keep(id, known)
	return known, nil
}

// keep keeps what was read; of too many, some other goes.
func (s *sharedSessions) keep(id string, known knownSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.known[id]; !there && len(s.known) >= cacheMax {
		for other := range s.known {
			delete(s.known, other)
			break
		}
	}
	s.known[id] = known
}

func (s *sharedSessions) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

// CommitCtx implements scs.CtxStore.
func (s *sharedSessions) CommitCtx(ctx context.Context, id string, data []byte, expires time.Time) error {
	if err := s.store.PutSession(ctx, operate.Session{ID: id, Data: data, Expires: expires}, s.now()); err != nil {
		return err
	}
	now := s.now()
	s.keep(id, knownSession{session{data, expires}, now, now})
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

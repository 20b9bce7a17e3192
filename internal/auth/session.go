package auth

import (
	"sync"
	"time"
)

// sessionsMax bounds the sessions of a process; only who has signed in has one. Of too many the one that ends next goes.
const sessionsMax = 10_000

// sessionStore is scs.Store in memory, where no store is shared: a session is of one process.
type sessionStore struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]session
}

type session struct {
	data    []byte
	expires time.Time
}

func newSessionStore(now func() time.Time) *sessionStore {
	return &sessionStore{now: now, all: map[string]session{}}
}

// Find implements scs.Store.
func (s *sessionStore) Find(token string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.all[token]
	if !ok || !s.now().Before(found.expires) {
		return nil, false, nil
	}
	return found.data, true, nil
}

// Commit implements scs.Store.
func (s *sessionStore) Commit(token string, data []byte, expires time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.all[token]; !there && len(s.all) >= sessionsMax {
		s.drop()
	}
	s.all[token] = session{data, expires}
	return nil
}

// drop makes room: what is over goes, or else what ends next; mu is held.
func (s *sessionStore) drop() {
	now, next := s.now(), ""
	for token, one := range s.all {
		if !now.Before(one.expires) {
			delete(s.all, token)
		} else if next == "" || one.expires.Before(s.all[next].expires) {
			next = token
		}
	}
	if len(s.all) >= sessionsMax {
		delete(s.all, next)
	}
}

// Delete implements scs.Store.
func (s *sessionStore) Delete(token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, token)
	return nil
}

// Package mock is what the examples share: services that keep a book of what is in effect and fail on demand, and the
// program around an example, which runs tasks and compares the books with what Duly says of them.
package mock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	"duly.dev/duly"
)

// Faults are the shares, from 0 to 1, of what goes wrong.
type Faults struct {
	Refused   float64 // of keys: the service says no; final
	Transient float64 // of calls: an error before the effect
	Lost      float64 // of calls: an error after the effect
	Hung      float64 // of calls: no answer; in half of them the effect comes all the same, late
}

// FaultsNamed are the faults of a name: none, some or storm.
func FaultsNamed(name string) (Faults, error) {
	switch name {
	case "none":
		return Faults{}, nil
	case "some":
		return Faults{Refused: 0.02, Transient: 0.05, Lost: 0.02, Hung: 0.005}, nil
	case "storm":
		return Faults{Refused: 0.05, Transient: 0.15, Lost: 0.05, Hung: 0.03}, nil
	}
	return Faults{}, fmt.Errorf("faults %q: want none, some or storm", name)
}

// keysMax bounds the book of a service.
const keysMax = 1 << 20

// Service is a service that makes an effect once a key, takes it back, and makes none for a key that was taken back.
// It is for several goroutines at a time.
type Service struct {
	name    string
	faults  Faults
	seed    uint64
	backend Backend // nil: the book is here

	mu   sync.Mutex
	book map[string]*entry
}

// entry is what a service knows of one key.
type entry struct {
	calls int  // so far, do and undo
	times int  // effects that stand
	busy  bool // a call is at work
	tomb  bool // undone: no effect comes any more
}

// NewService makes a service. The same seed and calls meet the same fate.
func NewService(name string, faults Faults, seed uint64) *Service {
	return &Service{name: name, faults: faults, seed: seed, book: map[string]*entry{}}
}

// Backend performs the calls of services whose books are elsewhere, such as in another process that outlives this one.
type Backend interface {
	Do(ctx context.Context, service, key string) error
	Undo(ctx context.Context, service, key string) error
}

// Service makes a service of these settings.
func (s Settings) Service(name string) *Service {
	service := NewService(name, s.Faults, s.Seed)
	service.backend = s.Backend
	return service
}

// Name is the service's.
func (s *Service) Name() string { return s.name }

// Do makes the effect of a key. An error that is final is one of duly.Refuse.
func (s *Service) Do(ctx context.Context, key string) error {
	if s.backend != nil {
		return s.backend.Do(ctx, s.name, key)
	}
	e, call, err := s.enter(key, false)
	if err != nil {
		return err
	}
	defer s.leave(e)
	f := &s.faults
	switch u := s.draw(key, call); {
	case s.draw(key, 0) < f.Refused:
		return duly.Refuse(fmt.Errorf("%s %w %s", s.name, ErrRefuses, key))
	case u < f.Transient:
		return fmt.Errorf("%s is down", s.name)
	case u < f.Transient+f.Lost:
		s.effect(e)
		return fmt.Errorf("%s lost its answer", s.name)
	case u < f.Transient+f.Lost+f.Hung:
		<-ctx.Done()
		if call%2 == 0 {
			s.effect(e)
		}
		return ctx.Err()
	}
	s.effect(e)
	return nil
}

// Undo takes the effect of a key back, and leaves a tombstone.
func (s *Service) Undo(ctx context.Context, key string) error {
	if s.backend != nil {
		return s.backend.Undo(ctx, s.name, key)
	}
	e, call, err := s.enter(key, true)
	if err != nil {
		return err
	}
	defer s.leave(e)
	f := &s.faults
	switch u := s.draw(key, call); {
	case u < f.Transient:
		return fmt.Errorf("%s is down", s.name)
	case u < f.Transient+f.Hung:
		<-ctx.Done()
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.times = 0
	return nil
}

// Stands is how many effects of a key stand: 0 or 1, unless the service did not go by the key.
func (s *Service) Stands(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.book[key]; e != nil {
		return e.times
	}
	return 0
}

// Standing are the keys whose effects stand.
func (s *Service) Standing() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.book {
		if e.times > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// All is how many effects stand.
func (s *Service) All() (all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.book {
		all += e.times
	}
	return all
}

// ErrRefuses is what a service answers that says no.
var ErrRefuses = errors.New("refuses")

var errFull = errors.New("the book is full")

// enter lets one call of a key in at a time, and no do after an undo.
func (s *Service) enter(key string, undo bool) (e *entry, call int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.book[key]; e == nil {
		if len(s.book) >= keysMax {
			return nil, 0, fmt.Errorf("%s: %w", s.name, errFull)
		}
		e = &entry{}
		s.book[key] = e
	}
	switch {
	case e.busy:
		return nil, 0, duly.ErrInProgress
	case e.tomb && !undo:
		return nil, 0, duly.ErrGone
	}
	e.calls++
	e.busy, e.tomb = true, e.tomb || undo
	return e, e.calls, nil
}

func (s *Service) leave(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.busy = false
}

// effect makes the effect, if it is not there.
func (s *Service) effect(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.times = 1
}

// draw is a number in [0,1) for one call of a key; call 0 is for what is the same for all of them.
func (s *Service) draw(key string, call int) float64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%s/%d", s.seed, s.name, key, call)
	n := h.Sum64()
	n ^= n >> 29 // the last bytes of the text barely reach the high bits
	n *= 0xbf58476d1ce4e5b9
	n ^= n >> 32
	return float64(n>>11) / (1 << 53)
}

// Books are the services by the steps whose effects they keep: <type>/<step>.
type Books map[string]*Service

// Wrong are the steps of a task whose effects are not what the task says of them: a step that is done has one, any
// other none. doubled are of those the ones with more than one.
func (b Books) Wrong(task *duly.Task) (wrong []string, doubled int) {
	for i := range task.Steps {
		s := &task.Steps[i]
		service := b[task.Type+"/"+s.Name]
		if service == nil {
			continue
		}
		want := 0
		if s.Status == "done" {
			want = 1
		}
		got := service.Stands(fmt.Sprintf("%s/%s/0", task.ID, s.Name))
		if got > 1 {
			doubled++
		}
		if got != want {
			wrong = append(wrong, fmt.Sprintf("task %s: step %s is %s, and %d effects of it stand", task.ID, s.Name, s.Status, got))
		}
	}
	return wrong, doubled
}

// Standing is how many effects stand in all services.
func (b Books) Standing() (all int) {
	for _, service := range b {
		all += service.All()
	}
	return all
}

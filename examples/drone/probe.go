package drone

import (
	"context"

	"duly.dev/duly"
)

// KeyState is what a service says of a key when it is asked.
type KeyState uint8

// What a service says.
const (
	KeyAbsent     KeyState = iota // no effect, and none of attempts up to that one any more
	KeyInProgress                 // a call is at work with the key
	KeyDone                       // the effect stands
)

// ProbeBackend is a Backend that says what became of a key. It only looks, but for one thing: an attempt that it has said
// to be absent makes no effect any more, although its do may still be on its way.
type ProbeBackend interface {
	Backend
	Probe(ctx context.Context, step Step, in Call) (found KeyState, serial uint32, err error)
}

// Probe implements ProbeBackend; see Service.Probe.
func (s *Services) Probe(_ context.Context, step Step, in Call) (KeyState, uint32, error) {
	return s.each[step].Probe(in)
}

// attemptMost is the last attempt that a probe can close; later ones have no answer but that they may be at work.
const attemptMost = 255

// Probe says what became of a key whose attempt did not answer; serial is what a standing effect made. Error: ErrKey.
func (s *Service) Probe(in Call) (found KeyState, serial uint32, err error) {
	round, err := splitKey(in.Key, in.Task, s.step)
	if err != nil {
		return 0, 0, err
	}
	hash := hashText(in.Task)
	sh := s.books.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := &sh.open(hash, in.Task, round).entries[s.step]
	switch {
	case e.flags&flagBusy != 0:
		return KeyInProgress, 0, nil
	case e.live > 0:
		return KeyDone, e.serial, nil
	case e.flags&flagTombstone != 0:
		return KeyAbsent, 0, nil
	case in.Attempt > attemptMost:
		return KeyInProgress, 0, nil
	}
	e.closed = max(e.closed, uint8(max(in.Attempt, 0)))
	return KeyAbsent, 0, nil
}

// serveProbe lets the agent say what became of a step's key, where the services do.
func serveProbe[Out any](a *duly.Agent, s Backend, of *duly.Step[Request, Out], step Step, prepare preparation[Out]) error {
	backend, ok := s.(ProbeBackend)
	if !ok {
		return nil
	}
	return of.ServeProbe(a, func(ctx context.Context, c duly.Call[Request]) (duly.Probe[Out], error) {
		w, err := prepare(&c)
		if err != nil {
			return duly.Probe[Out]{}, err
		}
		found, serial, err := backend.Probe(ctx, step, callFor(&c, w.given))
		switch {
		case err != nil:
			return duly.Probe[Out]{}, err
		case found == KeyDone:
			return duly.Done(w.made(serial)), nil
		case found == KeyInProgress:
			return duly.InProgress[Out](), nil
		}
		return duly.Absent[Out](), nil
	})
}

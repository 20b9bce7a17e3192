package drone

import (
	"context"
	"sync"
	"time"
)

// fail answers 503. One time in four the effect was made all the same: an error
// is no proof of "nothing happened".
func (s *Service) fail(ctx context.Context, c *call) error {
	if c.fate.mode%4 == 0 {
		if _, err := s.run(ctx, c); err != nil {
			return err
		}
		return ErrUnavailable
	}
	if c.fate.latency > 0 {
		if err := wait(ctx, c.fate.latency); err != nil {
			return err
		}
	}
	return ErrUnavailable
}

// hang returns only when the caller has given up. What became of the effect is
// one of four, drawn:
//   - it was made, and the answer is stuck;
//   - the service is stuck with the key in its hands, and makes it later;
//   - the request is stuck on its way, and arrives later, perhaps behind an undo;
//   - it is never made.
func (s *Service) hang(ctx context.Context, c *call) error {
	s.pending.add()
	kept := false
	defer func() {
		if !kept {
			s.pending.done()
		}
	}()
	held := false
	switch c.fate.mode % 4 {
	case 0:
		if _, err := s.run(ctx, c); err != nil && ctx.Err() == nil {
			return err
		}
	case 1:
		if held = c.enter(); !held {
			return ErrTooEarly
		}
	}
	<-ctx.Done()
	if mode := c.fate.mode % 4; mode == 1 || mode == 2 {
		kept = true
		late := *c
		time.AfterFunc(time.Duration(c.fate.late*float64(s.lateMax)), func() {
			defer s.pending.done()
			s.lateEffect(&late, held)
		})
	}
	return ctx.Err()
}

// lateEffect is the effect of a call whose caller has gone.
func (s *Service) lateEffect(c *call, held bool) {
	if s.books.keep {
		c.began = time.Now()
	}
	_, err := s.effect(c, !held)
	s.counts.late(err)
	if s.books.keep && err != nil {
		s.logFailure(c, err)
	}
}

// die is an agent that dies before, during or after the effect. In all cases
// no answer comes; the context's end stands for the process that is gone.
func (s *Service) die(ctx context.Context, c *call) error {
	switch c.fate.mode % 4 {
	case 0: // before
	case 1: // during: the service noticed, and made nothing of it
		if !c.enter() {
			return ErrTooEarly
		}
		_ = wait(ctx, c.fate.latency/2)
		c.leave()
	default: // during, and the service went on; or after
		if _, err := s.run(ctx, c); err != nil && ctx.Err() == nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// Settle waits until no late effect is outstanding. Call it before counting,
// when no agent runs any more.
func (s *Services) Settle(ctx context.Context) error { return s.pending.wait(ctx) }

// pending counts what is still to come. A sync.WaitGroup may not be waited for
// while it rises from zero, and cannot be given up.
type pending struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed at zero; nil when no call of wait is blocked
}

func (p *pending) add() {
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
}

func (p *pending) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n--
	if p.n == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

func (p *pending) wait(ctx context.Context) error {
	p.mu.Lock()
	if p.n == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

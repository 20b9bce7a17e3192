package sim

import (
	"context"
	"errors"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// books are what the services keep: which keys have their effect.
type books struct {
	w          *World
	tombstones bool // a service takes no call of a key whose undo it has seen; then the network may double commands
	live       map[string]bool
	tomb       map[string]bool
	refused    map[string]bool
	busy       map[string]core.Instant // until when a hung do is at work
}

func newBooks(w *World) books {
	return books{
		w: w, tombstones: w.rand.IntN(2) == 0,
		live: map[string]bool{}, tomb: map[string]bool{}, refused: map[string]bool{}, busy: map[string]core.Instant{},
	}
}

// late is a call that lands after its handler was given up.
func (b *books) late(key string) {
	if !b.tombstones || !b.tomb[key] {
		b.live[key] = true
	}
}

func (b *books) undo(key string) {
	delete(b.live, key)
	b.tomb[key] = true
}

// refuses draws whether a service refuses a key. Where the network doubles
// commands, both copies get the same answer, because nobody but the service
// knows that there are two; elsewhere it may refuse a key that has its effect.
func (b *books) refuses(key string) bool {
	if b.tombstones && b.live[key] {
		return false
	}
	refused := b.w.rand.IntN(40) == 0 || b.tombstones && b.refused[key]
	b.refused[key] = refused
	return refused
}

// hireAgents makes the runtime that serves every step, with a ledger that
// outlives its deaths.
func (w *World) hireAgents() {
	clock := agentTime{w}
	w.runtime = agents.New(agents.Config{
		Time: clock, Log: w.cfg.Log, TriesMax: 2, Backoff: 5 * time.Millisecond,
		Ledger: agents.NewMemoryLedger(func() core.Instant { return w.now }, time.Hour, 0),
	})
	served := map[string]bool{}
	for _, p := range w.plans {
		for _, s := range p.Steps {
			if served[s.Agent+s.Name] {
				continue
			}
			served[s.Agent+s.Name] = true
			h := agents.Handlers{Do: w.do}
			if s.Undoable {
				h.Undo = w.undo
			}
			if err := w.runtime.Register(s.Agent, s.Name, h); err != nil {
				panic(err) // the world is built wrong
			}
		}
	}
}

// work is one command at its agent; the answer leaves when the work is done.
func (w *World) work(c core.Command) {
	w.lag = 0
	reply, answered := w.runtime.Handle(context.Background(), w.now, &c)
	took := w.lag
	w.lag = 0
	if answered && w.now.Add(took) >= c.CompleteBy {
		w.wrong(c.Partition, c.Task, "an agent spoke after its complete-by: %+v", reply)
	}
	if !answered || w.fault(0.04) {
		return
	}
	w.after(took+w.delay(), func() { w.hear(reply) })
	if w.fault(0.05) {
		w.after(took+w.delay(), func() { w.hear(reply) })
	}
}

var errHandler = errors.New("no luck")

// do is every service's do: it takes effect, fails with or without one, refuses,
// or hangs and takes effect later than anybody waits for.
func (w *World) do(ctx context.Context, c *core.Command) ([]byte, error) {
	key := c.Key()
	undoable := w.undoable(c)
	if w.now.Add(w.lag) >= c.CompleteBy {
		w.wrong(c.Partition, c.Task, "an agent worked after its complete-by: %+v", *c)
	}
	if w.books.busy[key] > w.now {
		return nil, agents.ErrInProgress
	}
	w.lag += w.upTo(20 * time.Millisecond)
	switch {
	case w.books.refuses(key):
		return nil, agents.Refuse(422, errors.New("not this one"))
	case w.fault(0.05):
		return nil, errHandler
	case w.fault(0.05) && undoable:
		w.books.live[key] = true // that no undo went before is the ledger's part
		return nil, errHandler
	case w.fault(0.05):
		left := c.CompleteBy.Sub(w.now)
		w.books.busy[key] = c.CompleteBy
		w.lag += left
		if undoable {
			w.after(left+w.upTo(slow), func() { w.books.late(key) })
		}
		return nil, ctx.Err()
	}
	if undoable {
		w.books.live[key] = true
	}
	return []byte(`{"step":"` + c.Step + `"}`), nil
}

func (w *World) undo(ctx context.Context, c *core.Command) ([]byte, error) {
	key := c.Key()
	if w.books.busy[key] > w.now {
		return nil, agents.ErrInProgress
	}
	w.lag += w.upTo(20 * time.Millisecond)
	switch {
	case w.fault(0.1):
		return nil, errHandler
	case w.fault(0.05):
		w.lag += c.CompleteBy.Sub(w.now)
		return nil, ctx.Err()
	}
	w.books.undo(key)
	return nil, nil
}

func (w *World) undoable(c *core.Command) bool {
	for _, p := range w.plans {
		if i := p.StepIndex(c.Step); p.Name == c.Type && i >= 0 {
			return p.Steps[i].Undoable
		}
	}
	return false
}

// agentTime is the clock of the handler at work: ahead of the world's by what it
// has waited for.
type agentTime struct{ w *World }

func (a agentTime) Now() core.Instant { return a.w.now.Add(a.w.lag) }
func (a agentTime) Float64() float64  { return a.w.rand.Float64() }

func (a agentTime) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return agentContext{ctx, a, a.Now().Add(d)}, func() {}
}

func (a agentTime) Sleep(ctx context.Context, d time.Duration) error {
	a.w.lag += d
	return ctx.Err()
}

// agentContext ends by that clock.
type agentContext struct {
	context.Context
	clock agentTime
	end   core.Instant
}

func (c agentContext) Err() error {
	if c.clock.Now() >= c.end {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

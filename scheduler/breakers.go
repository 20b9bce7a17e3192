package scheduler

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// Breakers of a node. What the shards count is summed up for each agent; while calls of one fail the node tells the state
// store what it has counted, reads what all nodes have, and has the core decide. The first to store a change has made it
// for all; the others read it.

// BreakerStore keeps breakers, for all nodes.
type BreakerStore interface {
	// Breakers returns all that there are, up to core.BreakersMax, the newest first.
	Breakers(ctx context.Context) ([]core.Breaker, error)
	// PutBreaker stores a breaker if the stored one has the revision before, or there is none and this is its first. It
	// reports false where another change came first.
	PutBreaker(ctx context.Context, b core.Breaker) (bool, error)
	// ReportCalls stores what a node has counted of an agent's calls since the agent's breaker has a revision, and returns
	// the sum of what nodes have reported of that revision since an instant.
	ReportCalls(ctx context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (core.Calls, error)
}

// BreakerConfig is what a scheduler needs for breakers. Without a store there are none.
type BreakerConfig struct {
	Store    BreakerStore
	Policy   core.BreakerPolicy
	Announce func() // tells the other nodes that a breaker has changed; nil: they read it seconds later
}

// Enabled reports whether there are breakers.
func (c *BreakerConfig) Enabled() bool { return c.Store != nil }

const (
	windowParts   = 10                     // of a window, in which calls are summed up
	breakerAgents = 4096                   // agents whose calls a node counts
	breakerSoon   = 20 * time.Millisecond  // least time between two turns that a trial asks for
	breakerLeast  = 100 * time.Millisecond // and between two others
)

// callWindow is what a node has counted of one agent.
type callWindow struct {
	parts    [windowParts]callPart
	trial    core.Calls
	revision int64 // of the breaker that they are about
}

type callPart struct {
	at    core.Instant // when it began
	calls core.Calls
}

// add counts calls at an instant, in parts of a length.
func (w *callWindow) add(now core.Instant, part time.Duration, calls core.Calls) {
	i := int(int64(now) / max(1, part.Microseconds()) % windowParts)
	begins := now - now%core.Instant(max(1, part.Microseconds()))
	if w.parts[i].at != begins {
		w.parts[i] = callPart{at: begins}
	}
	w.parts[i].calls.Add(calls)
}

// since sums up what was counted in parts that began at an instant or later.
func (w *callWindow) since(at core.Instant) (sum core.Calls) {
	for i := range w.parts {
		if w.parts[i].at >= at {
			sum.Add(w.parts[i].calls)
		}
	}
	return sum
}

// breakers is what a node knows of breakers. Its methods are safe for concurrent use.
type breakers struct {
	kick     signal       // a turn is due
	openings atomic.Int64 // that this node decided

	mu      sync.Mutex
	windows map[string]*callWindow
	known   map[string]core.Breaker
	sent    []core.Breaker // to the shards: those that are not closed
	trying  bool           // some trial has come to something
	asked   core.Instant   // when calls that fail last asked for a turn
}

func newBreakers() *breakers {
	return &breakers{kick: newSignal(), windows: map[string]*callWindow{}, known: map[string]core.Breaker{}}
}

// collect takes what a shard has counted. It asks for a turn soon when an agent begins to fail, and when what this node alone
// has counted opens its breaker: until then each call is one more that fails.
func (b *breakers) collect(of *agentBook, now core.Instant, p *core.BreakerPolicy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	trying, window := false, p.Window
	of.collect(func(agent string, revision int64, calls, trial core.Calls) {
		w := b.windows[agent]
		if w == nil {
			if len(b.windows) >= breakerAgents {
				return
			}
			w = &callWindow{}
			b.windows[agent] = w
		}
		w.add(now, window/windowParts, calls)
		if is := b.known[agent]; calls.Failed > 0 && b.asked.Elapsed(now, breakerLeast) {
			is.Agent = agent
			all := w.since(max(now.Add(-window), is.Since))
			if _, opens := is.Next(p, now, all, core.Calls{}); all.Failed == calls.Failed || opens {
				b.asked = now
				b.kick.set()
			}
		}
		if trial != (core.Calls{}) && revision == b.known[agent].Revision {
			if w.revision != revision {
				w.trial, w.revision = core.Calls{}, revision
			}
			w.trial.Add(trial)
			trying = true
		}
	})
	if trying && !b.trying {
		b.trying = true
		b.kick.set()
	}
}

// due are the agents whose breakers may have to change: with a call that failed in the window, or one of a trial.
func (b *breakers) due(now core.Instant, window time.Duration) (all []dueBreaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	for agent, w := range b.windows {
		is := b.known[agent]
		if is.State != core.BreakerOpen && is.State != core.BreakerTrial && w.since(now.Add(-window)) == (core.Calls{}) {
			delete(b.windows, agent)
			continue
		}
		d := dueBreaker{is: is}
		d.is.Agent = agent
		d.since = max(now.Add(-window), is.Since)
		d.calls = w.since(d.since)
		if w.revision == is.Revision {
			d.trial = w.trial
		}
		if d.calls.Failed > 0 || d.trial != (core.Calls{}) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b dueBreaker) int { return strings.Compare(a.is.Agent, b.is.Agent) })
	return all
}

type dueBreaker struct {
	is    core.Breaker
	since core.Instant
	calls core.Calls
	trial core.Calls
}

// learn takes breakers as they are stored, all or some, and returns those that are not closed if they are others than the shards know.
func (b *breakers) learn(stored []core.Breaker, all bool) (open []core.Breaker, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all { // what is missing, or of an earlier revision: the database went back
		clear(b.known)
	}
	for _, is := range stored {
		b.known[is.Agent] = is
	}
	for _, is := range b.known {
		if is.State != core.BreakerClosed {
			open = append(open, is)
		}
	}
	slices.SortFunc(open, func(a, b core.Breaker) int { return strings.Compare(a.Agent, b.Agent) })
	if slices.Equal(open, b.sent) {
		return nil, false
	}
	b.sent = open
	return open, true
}

// failing reports whether there is something to look after often.
func (b *breakers) failing(now core.Instant, window time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sent) > 0 {
		return true
	}
	for _, w := range b.windows {
		if w.since(now.Add(-window)).Failed > 0 {
			return true
		}
	}
	return false
}

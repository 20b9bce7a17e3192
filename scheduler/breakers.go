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

// Breakers of a node. The node sums up what its shards count for each agent. While calls of an agent fail, the node reports its
// counts to the state store, reads the sum over all nodes, and asks the core for a decision. The first node to store a change
// makes it for all; the others read it.

// BreakerStore keeps breakers, for all nodes.
type BreakerStore interface {
	// Breakers returns all that there are, by agent: one that is not among them counts as closed and never stored.
	Breakers(ctx context.Context) ([]core.Breaker, error)
	// PutBreaker stores a breaker if the stored one has the revision before, or there is none and this is its first. It
	// reports false where another change came first.
	PutBreaker(ctx context.Context, b core.Breaker) (bool, error)
	// ReportCalls stores what a node has counted for an agent since the agent's breaker has this revision. It
	// returns the sum of what all nodes have reported for that revision since an instant.
	ReportCalls(ctx context.Context, agent, node string, revision int64, at core.Instant, calls core.Calls, since core.Instant) (core.Calls, error)
}

// BreakerConfig is what a scheduler needs for breakers. Without a store there are none.
type BreakerConfig struct {
	Store  BreakerStore
	Policy core.BreakerPolicy
	// Announce tells the other nodes that a breaker has changed; nil: they read it seconds later.
	Announce func()
}

// Enabled reports whether there are breakers.
func (c *BreakerConfig) Enabled() bool { return c.Store != nil }

const (
	windowParts   = 10                     // parts of a window, each with its own sum of calls
	breakerAgents = 4096                   // most agents whose calls a node counts
	breakerSoon   = 20 * time.Millisecond  // least time between two turns
	breakerLeast  = 100 * time.Millisecond // least time between two turns that failing calls ask for
)

// callWindow is what a node has counted for one agent, as a ring of parts of the policy's window.
type callWindow struct {
	parts [windowParts]callPart
	// trial counts the calls of the trial of the breaker with this revision.
	trial    core.Calls
	revision int64
}

type callPart struct {
	at    core.Instant // when it began
	calls core.Calls
}

// add counts calls at an instant. part is the length of a part.
func (w *callWindow) add(now core.Instant, part time.Duration, calls core.Calls) {
	i := int(int64(now) / max(1, part.Microseconds()) % windowParts)
	begins := now - now%core.Instant(max(1, part.Microseconds()))
	if w.parts[i].at != begins {
		w.parts[i] = callPart{at: begins}
	}
	w.parts[i].calls.Add(calls)
}

// since sums up the parts that began at an instant or later.
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
	// kick asks for a turn.
	kick signal
	// openings counts the breakers that this node opened.
	openings atomic.Int64

	mu      sync.Mutex
	windows map[string]*callWindow
	known   map[string]core.Breaker
	// sent is what the shards were told: the breakers that are not closed.
	sent []core.Breaker
	// trying is whether calls of a trial came in since the last turn.
	trying bool
	// asked is when failing calls last asked for a turn.
	asked core.Instant
}

func newBreakers() *breakers {
	return &breakers{kick: newSignal(), windows: map[string]*callWindow{}, known: map[string]core.Breaker{}}
}

// collect adds what a shard has counted. It kicks the duty when an agent begins to fail, and when the node's
// own counts would open a breaker: until the breaker is open, each further call fails as well.
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

// due returns the agents whose breakers may have to change: a call failed in the window, or a trial has an
// outcome.
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

// dueBreaker is a breaker to be decided on, with the calls counted since an instant and those of its trial.
type dueBreaker struct {
	is    core.Breaker
	since core.Instant
	calls core.Calls
	trial core.Calls
}

// learn takes breakers as they are stored; all says that these are all there are. It returns those that are
// not closed, if they differ from what the shards were told.
func (b *breakers) learn(stored []core.Breaker, all bool) (open []core.Breaker, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all { // forgets breakers that are gone or of an earlier revision, because the database went back
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

// failing reports whether the breakers need attention often: one is not closed, or calls failed in the
// window.
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

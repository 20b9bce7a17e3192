package scheduler

import (
	"time"

	"duly.dev/duly/internal/core"
)

// What a shard knows of agents, over all its partitions: their breakers, their limits and what is out at them. What its calls
// come to is counted here, for breakers.go to decide by. An agent whose breaker is not closed is one that has no room, or
// little: a step that would begin there parks its task, whichever attempt it is, and a task that cannot wait so long is undone
// at once.

// agentCalls is what a shard knows of one agent, over all its partitions.
type agentCalls struct {
	name     string
	calls    core.Calls // since they were collected
	trial    core.Calls // likewise, of those of a trial
	counted  bool       // it is among those that are to be collected
	trialOut int        // do commands of a trial that are out
	breaker  core.Breaker
	inUse
	keys    map[string]*keyCalls // of its limit; nil: that has none
	book    *agentBook
	last    int           // partition that has claimed last of what all share
	longest time.Duration // that a do command may be at work
	usual   time.Duration // in which it answers, when nothing is in the way
	usualAt core.Instant
}

// keyCalls is what a shard knows of one key at an agent. It is there while the key is in use.
type keyCalls struct {
	inUse
	agent      *agentCalls
	key        string
	wantsPlace bool  // a do command was kept back since its use was last told
	reporting  bool  // it is among those whose use is to be told
	nextRound  waker // a round is to look at what stands aside for it: it is among those that are ready
}

// usualGrows is by what part of itself the time in which an agent usually answers grows in a second in which no answer is
// as quick.
const usualGrows = 0.01

// answered takes how long an answer took, and reports whether it was late.
func (a *agentCalls) answered(took time.Duration, now core.Instant) (late bool) {
	if a.usual == 0 || took < a.usual {
		a.usual = max(took, time.Millisecond)
	} else {
		a.usual += time.Duration(usualGrows * now.Sub(a.usualAt).Seconds() * float64(a.usual))
	}
	a.usualAt = now
	return took-a.usual > lateAfter
}

// agentBook is what a shard knows of agents: their breakers, their limits and what is out at them.
type agentBook struct {
	now           func() core.Instant
	hears         func() int64 // as in Config
	heard         int64        // as it said last
	keyOf         func(expression string, t *core.Task) (string, error)
	all           map[string]*agentCalls
	counted       []*agentCalls
	open          []core.Breaker // those that are not closed
	limited       map[string]core.Limit
	keyed         bool                // one of them has keys
	ready         []*keyCalls         // for which tasks that stand aside may go on
	unreported    []*keyCalls         // whose use is to be told
	nextRateRound waker               // a round is to look at what stands aside for the rates of keys
	behind        map[int]*leftBehind // by partition
	term          int64               // how many partitions the shard has taken over: grants from before the newest are not used
	backTimes     []core.Instant      // of the event at hand
}

// of is the agent of a name.
func (b *agentBook) of(name string) *agentCalls {
	a := b.all[name]
	if a == nil {
		if b.all == nil {
			b.all = map[string]*agentCalls{}
		}
		a = &agentCalls{name: name, book: b, last: -1}
		for _, is := range b.open {
			if is.Agent == name {
				a.breaker = is
			}
		}
		if l, ok := b.limited[name]; ok {
			if l.InAll() {
				a.limit = &shardLimit{limit: l}
			}
			if l.Key != "" {
				a.keys = map[string]*keyCalls{}
			}
		}
		b.all[name] = a
	}
	return a
}

// gated reports whether any agent may have less room than its window.
func (b *agentBook) gated() bool { return len(b.open)+len(b.limited) > 0 }

// set takes the breakers that are not closed.
func (b *agentBook) set(known []core.Breaker) {
	b.open = known
	is := make(map[string]core.Breaker, len(known))
	for _, k := range known {
		is[k.Agent] = k
	}
	for name, a := range b.all {
		if a.breaker != is[name] {
			a.breaker, a.trial = is[name], core.Calls{}
		}
	}
}

// count notes calls of an agent. What a trial's calls come to after the breaker has opened again says nothing about the next
// trial.
func (b *agentBook) count(now core.Instant, a *agentCalls, calls core.Calls, trial bool) {
	a.calls.Add(calls)
	if state, _ := a.breaker.At(now); trial && state == core.BreakerTrial {
		a.trial.Add(calls)
	}
	if !a.counted {
		a.counted = true
		b.counted = append(b.counted, a)
	}
}

// collect gives out what the shard has counted since the last call, agent by agent.
func (b *agentBook) collect(yield func(agent string, revision int64, calls, trial core.Calls)) {
	for _, a := range b.counted {
		yield(a.name, a.breaker.Revision, a.calls, a.trial)
		a.calls, a.trial, a.counted = core.Calls{}, core.Calls{}, false
	}
	b.counted = b.counted[:0]
}

// leftBehind is what tasks of a partition had out when they were let go.
type leftBehind struct {
	epoch  int64        // of the partition
	over   core.Instant // by then they are
	places []leftPlace
}

// leftPlace is one of an agent's limit, and of a key.
type leftPlace struct {
	agent *agentCalls // nil: that has no limit in all
	key   *keyCalls   // nil: it has no key
}

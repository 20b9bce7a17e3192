package scheduler

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// What a shard knows of agents, over all its partitions: their breakers, their limits, and how many commands are out. The
// outcomes of calls are counted here; breakers.go decides by them. While an agent's breaker is not closed, the agent counts
// as full, or nearly: a step that would begin there parks its task, whichever attempt it is, and a task that cannot wait
// that long is undone at once.

// agentCalls is what a shard knows of one agent, over all its partitions.
type agentCalls struct {
	name string
	// calls counts outcomes since the committer last collected them, trial those of calls that were a
	// breaker's trial.
	calls core.Calls
	trial core.Calls
	// counted is whether the agent is in agentBook.counted.
	counted bool
	// trialOut counts do commands that are out as a breaker's trial.
	trialOut int
	breaker  core.Breaker
	inUse
	// keys holds the keys in use of the agent's limit; nil: the limit has no keys.
	keys map[string]*keyCalls
	book *agentBook
	// last is the partition that last claimed parked tasks from room that all partitions share: the next one
	// goes first.
	last int
	// longest is how long a do command may be at work there: the longest complete-by and grace of the plans
	// seen so far.
	longest time.Duration
	// usual is how long nine of ten answers take at most when nothing is in the way, as of usualAt; 0: that is not known yet.
	usual   time.Duration
	usualAt core.Instant
	// lasted are answers since usual was last compared with them, of which there are so many.
	lasted  [usualOf]time.Duration
	answers int
}

// keyCalls is what a shard knows of one key of an agent's limit. It exists while the key is in use.
type keyCalls struct {
	inUse
	agent *agentCalls
	key   string
	// wantsPlace is whether a do was blocked by this key since its use was last reported.
	wantsPlace bool
	// reporting is whether the key is in agentBook.unreported.
	reporting bool
	// nextRound is set while the key is in agentBook.ready: the next round lets tasks that stand aside for it
	// come back.
	nextRound waker
}

const (
	// usualOf is of how many answers nine of ten are taken for the usual: what some calls take less, or is refused at once, does
	// not make the others late.
	usualOf = 64
	// usualGrows is the share by which an agent's usual time to answer grows each second without answers that are as quick: an
	// agent that has become slower for good is soon not called late any more.
	usualGrows = 0.01
)

// answered takes note of how long an answer took, and reports whether it was late: by lateAfter, or by half of the usual time if
// that is more, since what takes long differs more. sure: it took no longer, and its call was done.
func (a *agentCalls) answered(took time.Duration, sure bool, now core.Instant) (late bool) {
	late = a.usual != 0 && took-a.usual > max(lateAfter, a.usual/2)
	if !sure {
		return late
	}
	a.usual += time.Duration(usualGrows * max(0, now.Sub(a.usualAt).Seconds()) * float64(a.usual))
	a.usualAt = now
	a.lasted[a.answers] = took
	if a.answers++; a.answers == usualOf {
		a.answers = 0
		slices.Sort(a.lasted[:])
		if is := max(a.lasted[usualOf*9/10], time.Millisecond); a.usual == 0 || is < a.usual {
			a.usual = is
		}
	}
	return late
}

// agentBook holds what a shard knows of agents.
type agentBook struct {
	now func() core.Instant
	// hears is Config.Hears; heard is what it last returned.
	hears func() int64
	heard int64
	keyOf func(expression string, t *core.Task) (string, error)
	all   map[string]*agentCalls
	// counted are the agents with calls that were not collected yet.
	counted []*agentCalls
	// open are the breakers that are not closed.
	open    []core.Breaker
	limited map[string]core.Limit
	// keyed is whether any limit has keys.
	keyed bool
	// ready are keys that may have room again: the next round lets tasks that stand aside for them come back.
	ready []*keyCalls
	// unreported are keys whose use has changed since limitUses last reported it.
	unreported []*keyCalls
	// nextRateRound is when a round is wanted because a key's rate lets another command through.
	nextRateRound waker
	// behind holds, by partition, what tasks had out when this shard let the partition go; see left.go.
	behind map[int]*leftBehind
	// term counts the partitions that the shard has taken over. Grants claimed in an earlier term are not
	// used.
	term int64
	// backTimes is memory for Event.Back of the event at hand.
	backTimes []core.Instant
}

// of returns the agent of a name, and makes its entry if it is not known yet.
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

// gated reports whether any agent may have less room than its window: then the gate has to be asked for every
// do.
func (b *agentBook) gated() bool { return len(b.open)+len(b.limited) > 0 }

// set replaces the breakers that are not closed. A breaker that changed begins to count its trial anew.
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

// count adds outcomes of an agent's calls. A trial's outcome counts for the trial only while the breaker is
// still in trial: if it has opened again since, the outcome says nothing about the next trial.
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

// collect yields what was counted since the last call, agent by agent, and forgets it.
func (b *agentBook) collect(yield func(agent string, revision int64, calls, trial core.Calls)) {
	for _, a := range b.counted {
		yield(a.name, a.breaker.Revision, a.calls, a.trial)
		a.calls, a.trial, a.counted = core.Calls{}, core.Calls{}, false
	}
	b.counted = b.counted[:0]
}

// leftBehind is what tasks of a partition had out when the shard let the partition go.
type leftBehind struct {
	epoch int64 // of the partition
	// over is when all of these commands are over at the latest.
	over   core.Instant
	places []leftPlace
}

// leftPlace is a place that one left-behind command keeps, of an agent's limit and of a key.
type leftPlace struct {
	// agent is nil if the agent has no limit on all its calls, key if the command has no key.
	agent *agentCalls
	key   *keyCalls
}

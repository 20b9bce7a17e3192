package scheduler

import (
	"time"

	"duly.dev/duly/internal/core"
)

// Limits per key in a shard. What is out at an agent that has such a limit is counted for each key as well, and the shard
// has a grant for each key in use. A parked task whose key has no place stands aside, so that those of other keys go on; it
// comes back into the order when its key has one.

// key is what is known of a key of an agent's limit.
func (a *agentCalls) key(name string) *keyCalls {
	k := a.keys[name]
	if k == nil {
		l := a.book.limited[a.name]
		k = &keyCalls{agent: a, key: name, inUse: inUse{limit: &shardLimit{limit: l.OfKey(), at: a.book.now()}}}
		a.keys[name] = k
	}
	return k
}

// report notes that the use of the key is to be told.
func (k *keyCalls) report() {
	if !k.reporting {
		k.reporting = true
		k.agent.book.unreported = append(k.agent.book.unreported, k)
	}
}

// reopen lets tasks that stand aside for the key come back in the next look at what waits, if it has room then.
func (k *keyCalls) reopen() {
	if k.nextRound.lookAt == 0 {
		k.agent.book.ready = append(k.agent.book.ready, k)
	}
	k.nextRound.wake(k.agent.book.now())
}

// end forgets a command that was out, so that others may go on.
func (k *keyCalls) end() {
	k.out--
	k.report()
	k.reopen()
}

// spend is inUse.spend.
func (k *keyCalls) spend(now core.Instant) {
	k.inUse.spend(now)
	k.report()
	k.wakeForRate(now) // others may wait
}

// keyRoundGap is the least time between two looks at tasks that wait for the rates of their keys: a look goes over all of those.
const keyRoundGap = 20 * time.Millisecond

// wakeForRate makes a round look at what waits when the rate lets the next command through, if it is the rate that keeps it back.
func (k *keyCalls) wakeForRate(now core.Instant) {
	if next := k.next(now); next != 0 {
		k.agent.book.nextRateRound.wake(max(next, now.Add(keyRoundGap)))
	}
}

// take is the shard's part of a grant.
func (k *keyCalls) take(m *GrantMail, now core.Instant) {
	k.limit.take(m, now, k.out)
	k.report()
	k.reopen()
}

// noteBlocked notes that a do command is kept back by the key alone, or by it first: it is to get a place.
func (k *keyCalls) noteBlocked(now core.Instant) {
	k.wantsPlace = true
	k.report()
	k.wakeForRate(now)
}

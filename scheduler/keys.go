package scheduler

import (
	"time"

	"duly.dev/duly/internal/core"
)

// Limits per key in a shard. At an agent with such a limit commands are counted for each key as well, and the shard has a
// grant for each key in use. A parked task whose key has no place stands aside, so that tasks of other keys go on; it comes
// back into the order when its key has a place.

// key returns what is known of a key of the agent's limit, and makes an entry without a grant if it is new.
// The agent's limit must have keys.
func (a *agentCalls) key(name string) *keyCalls {
	k := a.keys[name]
	if k == nil {
		l := a.book.limited[a.name]
		k = &keyCalls{agent: a, key: name, inUse: inUse{limit: &shardLimit{limit: l.OfKey(), at: a.book.now()}}}
		a.keys[name] = k
	}
	return k
}

// report has the key's use reported after this cycle, so that the node claims a grant for it.
func (k *keyCalls) report() {
	if !k.reporting {
		k.reporting = true
		k.agent.book.unreported = append(k.agent.book.unreported, k)
	}
}

// reopen lets the next round bring tasks back that stand aside for the key, as far as the key has room then.
func (k *keyCalls) reopen() {
	if k.nextRound.lookAt == 0 {
		k.agent.book.ready = append(k.agent.book.ready, k)
	}
	k.nextRound.wake(k.agent.book.now())
}

// end takes note that a command is over, so that others of the key may leave.
func (k *keyCalls) end() {
	k.out--
	k.report()
	k.reopen()
}

// spend charges the key's rate, and plans the round that can send the next command.
func (k *keyCalls) spend(now core.Instant) {
	k.inUse.spend(now)
	k.report()
	k.wakeForRate(now) // others may wait
}

// keyRoundGap is the least time between two rounds that serve keys' rates: each goes over all tasks that wait for one.
const keyRoundGap = 20 * time.Millisecond

// wakeForRate plans a round for when the key's rate lets the next command leave, if only the rate is in the
// way.
func (k *keyCalls) wakeForRate(now core.Instant) {
	if next := k.next(now); next != 0 {
		k.agent.book.nextRateRound.wake(max(next, now.Add(keyRoundGap)))
	}
}

// take replaces the key's grant by a newer one, and lets tasks that stand aside for it come back.
func (k *keyCalls) take(m *GrantMail, now core.Instant) {
	k.limit.take(m, now, k.out)
	k.report()
	k.reopen()
}

// noteBlocked takes note that a do cannot leave because of this key, so that the node claims a place for it.
func (k *keyCalls) noteBlocked(now core.Instant) {
	k.wantsPlace = true
	k.report()
	k.wakeForRate(now)
}

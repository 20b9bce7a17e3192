package scheduler

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// Limits per key in a shard. What is out at an agent that has such a limit is counted for each key as well, and the shard
// has a grant for each key in use. A parked task whose key has no place stands aside, so that those of other keys go on; it
// comes back into the order when its key has one.

// keyCalls is what a shard knows of one key at an agent. It is there while the key is in use.
type keyCalls struct {
	inUse
	agent   *agentCalls
	key     string
	kept    bool  // a do command was kept back since its use was last told
	changed bool  // it is among those whose use is to be told
	looks   waker // a round is to look at what stands aside for it: it is among those that are ready
}

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

// change notes that the use of the key is to be told.
func (k *keyCalls) change() {
	if !k.changed {
		k.changed = true
		k.agent.book.changed = append(k.agent.book.changed, k)
	}
}

// opened lets tasks that stand aside for the key come back in the next look at what waits, if it has room then.
func (k *keyCalls) opened() {
	if k.looks.lookAt == 0 {
		k.agent.book.ready = append(k.agent.book.ready, k)
	}
	k.looks.wake(k.agent.book.now())
}

// end forgets a command that was out, so that others may go on.
func (k *keyCalls) end() {
	k.out--
	k.change()
	k.opened()
}

// spend is inUse.spend.
func (k *keyCalls) spend(now core.Instant) {
	k.inUse.spend(now)
	k.change()
	k.lookNext(now) // others may wait
}

// keyLook is the least time between two looks at tasks that wait for the rates of their keys: a look goes over all of those.
const keyLook = 20 * time.Millisecond

// lookNext makes a round look at what waits when the rate lets the next command through, if it is the rate that keeps it back.
func (k *keyCalls) lookNext(now core.Instant) {
	if next := k.next(now); next != 0 {
		k.agent.book.rates.wake(max(next, now.Add(keyLook)))
	}
}

// take is the shard's part of a grant.
func (k *keyCalls) take(m *GrantMail, now core.Instant) {
	k.limit.take(m, now, k.out)
	k.change()
	k.opened()
}

// noKeys are those of a task none of whose agents has any.
var noKeys = []string{}

// keysOf finds the keys of a task at its agents, unless they are known.
func (b *agentBook) keysOf(e *entry) {
	if e.keys != nil || !b.keyed || e.plan == nil {
		return
	}
	e.keys = noKeys
	for i, a := range e.plan.agents {
		if a == nil || a.keys == nil {
			continue
		}
		if len(e.keys) == 0 {
			e.keys = make([]string, len(e.plan.agents))
		}
		if first := slices.Index(e.plan.agents, a); first < i {
			e.keys[i] = e.keys[first]
		} else if b.keyOf != nil {
			if key, err := b.keyOf(b.limited[a.name].Key, e.task); err == nil { // else it is the empty one
				e.keys[i] = key
			}
		}
	}
}

// keyAt is the key that counts for a step's commands; nil: none does.
func (e *entry) keyAt(step int) *keyCalls {
	if name, a := e.keyName(step); a != nil {
		return a.key(name)
	}
	return nil
}

// keyName is the same by its name, at its agent; nil: none counts.
func (e *entry) keyName(step int) (string, *agentCalls) {
	if len(e.keys) == 0 {
		return "", nil
	}
	if a := e.plan.agents[step]; a != nil && a.keys != nil {
		return e.keys[step], a
	}
	return "", nil
}

// ask is any do of the key: whether the key itself lets it leave.
func (k *keyCalls) ask() ask { return ask{agent: k.agent, keyed: true, key: k.key, only: byKey + 1} }

// keyStage holds back what has no place, or no call, of its key.
type keyStage struct{}

func (keyStage) room(a *ask, now core.Instant) verdict {
	is := a.agent
	if !a.keyed || is.keys == nil {
		return anyNumber
	}
	k := is.keys[a.key]
	if k == nil {
		return verdict{}
	}
	n := k.roomFor(a, now)
	return verdict{n: n, few: n >= 0}
}

// keepsBack notes that a do command is kept back by the key alone, or by it first: it is to get a place.
func (k *keyCalls) keepsBack(now core.Instant) {
	k.kept = true
	k.change()
	k.lookNext(now)
}

// rekey forgets the keys of an agent: its limit has another expression, or none any more. What is parked there is read again
// from the store.
func (a *agentCalls) rekey(has bool, in []*partition) {
	a.keys = nil
	if has {
		a.keys = map[string]*keyCalls{}
	}
	for _, p := range in {
		if slot := p.slots[a.name]; slot != nil && slot.order != nil {
			slot.order = nil
			slot.queue()
		}
	}
}

// lookKeys lets all that stands aside for keys come back if these have room: what was to go on first may not any more.
func (q *queues) lookKeys() {
	if !q.gate.agents.keyed {
		return
	}
	q.gate.looks.wake(q.gate.now)
	for _, p := range q.in.inOrder() {
		for _, slot := range p.agents {
			if slot.order != nil {
				slot.lookKeys()
			}
		}
	}
}

func (slot *agentSlot) lookKeys() {
	if slot.calls.keys == nil {
		return
	}
	for _, of := range slot.order.aside.reasons() {
		if !of.paused {
			slot.calls.key(of.key).opened()
		}
	}
}

// keyUses gives out what is used of the keys whose use has changed, and forgets those that are not in use any more.
func (g *gate) keyUses(in []*partition, yield func(limitUse)) {
	b := &g.agents
	changed := b.changed
	b.changed = nil
	for _, k := range changed {
		k.changed = false
		if k.agent.keys[k.key] != k { // the limit has other keys by now
			continue
		}
		waits := 0
		for _, p := range in {
			if slot := p.slots[k.agent.name]; slot != nil && slot.order != nil && !p.noMore {
				waits += slot.order.ofKey[k.key]
			}
		}
		if k.kept {
			waits = max(waits, 1)
		}
		k.kept = false
		use := k.says(limitOf{agent: k.agent.name, keyed: true, key: k.key}, g.now, waits, k.agent.longest)
		if use.idle() && k.looks.lookAt == 0 {
			delete(k.agent.keys, k.key)
		}
		yield(use)
	}
	b.changed = append(changed[:0], b.changed...)
}

// goesOn reports whether a task of the key is in the order of its partition.
func (q *queues) goesOn(k *keyCalls) bool {
	return slices.ContainsFunc(q.in.inOrder(), func(p *partition) bool {
		slot := p.slots[k.agent.name]
		return slot != nil && slot.order != nil && !p.noMore && slot.order.ofKey[k.key] > slot.order.aside.at(reason{key: k.key})
	})
}

// bringBack lets tasks that stand aside go on where their keys have room: the earliest deadline first.
func (q *queues) bringBack() {
	ready := q.gate.agents.ready
	q.gate.agents.ready = nil
	for _, k := range ready {
		k.looks = waker{}
		if k.agent.keys[k.key] != k {
			continue
		}
		of := reason{key: k.key}
		for room := q.gate.judge(k.ask()).n; ; {
			var first *agentSlot
			for _, p := range q.in.inOrder() {
				slot := p.slots[k.agent.name]
				if slot == nil || slot.order == nil || p.noMore {
					continue
				}
				at := slot.order
				if at.aside.left(of) { // the rest is in the store alone
					at.miss()
				}
				if at.aside.at(of) == 0 {
					continue
				}
				if first == nil || at.aside.before(&first.order.aside, of) {
					first = slot
				}
			}
			if first == nil {
				break
			}
			if room == 0 {
				k.lookNext(q.gate.now)
				break
			}
			if q.enter(first, first.order, first.order.aside.pop(of)) {
				room--
			}
		}
	}
}

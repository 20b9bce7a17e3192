package scheduler

import (
	"maps"
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
	kept    bool // a do command was kept back since its use was last told
	changed bool // it is among those whose use is to be told
	ready   bool // it is among those for which tasks that stand aside may go on
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

// look makes the round look at tasks that stand aside for the key.
func (k *keyCalls) look() {
	if !k.ready {
		k.ready = true
		k.agent.book.ready = append(k.agent.book.ready, k)
	}
}

// end is inUse.end, which may let others go on.
func (k *keyCalls) end(gone bool, over core.Instant) {
	k.inUse.end(gone, over)
	k.change()
	k.look()
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
		k.agent.book.rateAt = earlier(k.agent.book.rateAt, max(next, now.Add(keyLook)))
	}
}

// take is the shard's part of a grant.
func (k *keyCalls) take(m *GrantMail, now core.Instant) {
	k.limit.take(m, now, k.out)
	k.change()
	k.look()
}

// noKeys are those of a task none of whose agents has any.
var noKeys = []string{}

// keysOf finds the keys of a task at its agents, unless they are known.
func (s *Shard) keysOf(e *entry) {
	if e.keys != nil || !s.agents.keyed || e.plan == nil {
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
		} else if s.cfg.KeyOf != nil {
			if key, err := s.cfg.KeyOf(s.agents.limited[a.name].Key, e.task); err == nil { // else it is the empty one
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

// keyAtSlot is that of the steps at an agent of the task's partition.
func (e *entry) keyAtSlot(slot *agentSlot) *keyCalls {
	if len(e.keys) > 0 {
		if i := slices.Index(e.plan.slots, slot); i >= 0 {
			return e.keyAt(i)
		}
	}
	return nil
}

// keyRoom is how many do commands of a key may leave now; -1: as many as come.
func (a *agentCalls) keyRoom(key string, now core.Instant) int {
	if k := a.keys[key]; k != nil {
		return k.room(now, a.longest)
	}
	return 0
}

// keepsBack reports whether a key has no place for a do command that could leave otherwise: it is to get one.
func (s *Shard) keepsBack(k *keyCalls) bool {
	if k.room(s.cycle.now, k.agent.longest) != 0 {
		return false
	}
	k.kept = true
	k.change()
	k.lookNext(s.cycle.now)
	return true
}

// rekey forgets the keys of an agent: its limit has another expression, or none any more. What is parked there is read again
// from the store.
func (s *Shard) rekey(a *agentCalls, has bool) {
	a.keys = nil
	if has {
		a.keys = map[string]*keyCalls{}
	}
	for _, p := range s.inOrder() {
		if slot := p.slots[a.name]; slot != nil {
			slot.order = nil
		}
	}
}

// lookKeys makes the round look at all tasks that stand aside.
func (s *Shard) lookKeys() {
	for _, p := range s.inOrder() {
		for _, slot := range p.agents {
			at, a := slot.order, s.agents.all[slot.name]
			if at == nil || len(at.aside.keys) == 0 || a.keys == nil {
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(at.aside.keys)) {
				a.key(key).look()
			}
		}
	}
}

// keyUses gives out what the shard uses of the keys whose use has changed, and forgets those that are not in use any more.
func (s *Shard) keyUses(yield func(limitUse)) {
	b := &s.agents
	changed := b.changed
	b.changed = nil
	for _, k := range changed {
		k.changed = false
		if k.agent.keys[k.key] != k { // the limit has other keys by now
			continue
		}
		waits := 0
		for _, p := range s.partitions {
			if slot := p.slots[k.agent.name]; slot != nil && slot.order != nil && !p.noMore {
				waits += slot.order.ofKey[k.key]
			}
		}
		if k.kept {
			waits = max(waits, 1)
		}
		k.kept = false
		use := k.says(limitOf{agent: k.agent.name, keyed: true, key: k.key}, s.cycle.now, waits, k.agent.longest)
		if use.idle() && !k.ready {
			delete(k.agent.keys, k.key)
		}
		yield(use)
	}
	b.changed = append(changed[:0], b.changed...)
}

// bringBack lets tasks that stand aside go on where their keys have room: the earliest deadline first.
func (s *Shard) bringBack() {
	b := &s.agents
	for _, k := range b.ready {
		k.ready = false
		if k.agent.keys[k.key] != k {
			continue
		}
		for room := k.room(s.cycle.now, k.agent.longest); ; room-- {
			var first *parkedAt
			var park *bool
			for _, p := range s.inOrder() {
				slot := p.slots[k.agent.name]
				if slot == nil || slot.order == nil || p.noMore {
					continue
				}
				at := slot.order
				if at.aside.left(k.key) { // the rest is in the store alone
					at.miss()
					slot.park = true
				}
				if at.aside.at(k.key) == 0 {
					continue
				}
				if first == nil || at.aside.before(&first.aside, k.key) {
					first, park = at, &slot.park
				}
			}
			if first == nil {
				break
			}
			if room == 0 {
				k.lookNext(s.cycle.now)
				break
			}
			first.comeBack(k.key, &s.cfg.Weights)
			*park = true
		}
	}
	b.ready = b.ready[:0]
}

package scheduler

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

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
	k.agent.book.rateAt = earlier(k.agent.book.rateAt, k.limit.next(now, k.out)) // others may wait
}

// take is the shard's part of a grant.
func (k *keyCalls) take(m *grantMail, now core.Instant) {
	k.limit.take(m, now, k.out)
	k.change()
	k.look()
}

// noKeys are those of a task none of whose agents has any.
var noKeys = []string{}

// keysOf finds the keys of a task at its agents, unless they are known.
func (s *Shard) keysOf(e *entry) {
	if e.keys != nil || !s.breakers.keyed || e.plan == nil {
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
			if key, err := s.cfg.KeyOf(s.breakers.limited[a.name].Key, e.task); err == nil { // else it is the empty one
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
func (e *entry) keyAtSlot(slot int) *keyCalls {
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
	s.breakers.rateAt = earlier(s.breakers.rateAt, k.limit.next(s.cycle.now, k.out))
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
		if slot, ok := p.slots[a.name]; ok {
			delete(p.order, slot)
		}
	}
}

// lookKeys makes the round look at all tasks that stand aside.
func (s *Shard) lookKeys() {
	for _, p := range s.inOrder() {
		for slot, name := range p.names {
			at, a := p.order[slot], s.breakers.agents[name]
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
	b := &s.breakers
	changed := b.changed
	b.changed = nil
	for _, k := range changed {
		k.changed = false
		if k.agent.keys[k.key] != k { // the limit has other keys by now
			continue
		}
		waits := 0
		for _, p := range s.partitions {
			if slot, ok := p.slots[k.agent.name]; ok && p.order[slot] != nil && !p.noMore {
				waits += p.order[slot].ofKey[k.key]
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
	b := &s.breakers
	for _, k := range b.ready {
		k.ready = false
		if k.agent.keys[k.key] != k {
			continue
		}
		for room := k.room(s.cycle.now, k.agent.longest); ; room-- {
			var first *parkedAt
			var park *bool
			for _, p := range s.inOrder() {
				slot, ok := p.slots[k.agent.name]
				if !ok || p.order[slot] == nil || p.noMore {
					continue
				}
				at := p.order[slot]
				if at.aside.left(k.key) { // the rest is in the store alone
					at.again()
					p.park[slot] = true
				}
				if at.aside.at(k.key) == 0 {
					continue
				}
				if first == nil || at.aside.before(&first.aside, k.key) {
					first, park = at, &p.park[slot]
				}
			}
			if first == nil {
				break
			}
			if room == 0 {
				s.breakers.rateAt = earlier(s.breakers.rateAt, k.limit.next(s.cycle.now, k.out))
				break
			}
			first.comeBack(k.key, &s.cfg.Weights)
			*park = true
		}
	}
	b.ready = b.ready[:0]
}

// asideMax bounds the tasks that stand aside at an agent of a partition; further ones are read from the store when their
// key has room and none of it stands aside any more.
const asideMax = parkedMax / 4

// asideTask is a parked task that stands aside.
type asideTask struct {
	parkedTask
	begun bool
	of    flowKey // of one that has not begun
}

// asideQueue is a heap of those of one key.
type asideQueue struct {
	tasks []asideTask
	more  bool // the store has more of them
}

func (q *asideQueue) Len() int           { return len(q.tasks) }
func (q *asideQueue) Less(i, j int) bool { return q.tasks[i].before(&q.tasks[j].parkedTask) }
func (q *asideQueue) Swap(i, j int)      { q.tasks[i], q.tasks[j] = q.tasks[j], q.tasks[i] }

// Push implements heap.Interface.
func (q *asideQueue) Push(x any) { q.tasks = append(q.tasks, x.(asideTask)) }

// Pop implements heap.Interface.
func (q *asideQueue) Pop() any {
	last := len(q.tasks) - 1
	x := q.tasks[last]
	q.tasks[last] = asideTask{}
	q.tasks = q.tasks[:last]
	return x
}

// aside are the parked tasks at one agent of a partition that stand aside, by key.
type aside struct {
	keys    map[string]*asideQueue
	waiting int
}

// at is how many tasks of a key stand aside.
func (a *aside) at(key string) int {
	if q := a.keys[key]; q != nil {
		return len(q.tasks)
	}
	return 0
}

// before reports whether the first task of a key is to go on before that of another partition.
func (a *aside) before(other *aside, key string) bool {
	return a.keys[key].tasks[0].before(&other.keys[key].tasks[0].parkedTask)
}

// put lets a task stand aside, and reports false if there is no room for it: then it is in the store alone.
func (a *aside) put(key string, one asideTask) bool {
	if a.keys == nil {
		a.keys = map[string]*asideQueue{}
	}
	q := a.keys[key]
	if q == nil {
		q = &asideQueue{}
		a.keys[key] = q
	}
	if a.waiting >= asideMax {
		q.more = true
		return false
	}
	heap.Push(q, one)
	a.waiting++
	return true
}

// pop takes the first task of a key.
func (a *aside) pop(key string) asideTask {
	q := a.keys[key]
	one := heap.Pop(q).(asideTask)
	a.waiting--
	if len(q.tasks) == 0 && !q.more {
		delete(a.keys, key)
	}
	return one
}

// left reports, once, whether all that there is of a key is in the store.
func (a *aside) left(key string) bool {
	q := a.keys[key]
	if q == nil || len(q.tasks) > 0 || !q.more {
		return false
	}
	delete(a.keys, key)
	return true
}

// drop takes the tasks out that gone says, key by key.
func (a *aside) drop(gone func(parkedTask) bool) {
	for _, key := range slices.Sorted(maps.Keys(a.keys)) {
		q := a.keys[key]
		before := len(q.tasks)
		q.tasks = slices.DeleteFunc(q.tasks, func(one asideTask) bool { return gone(one.parkedTask) })
		a.waiting -= before - len(q.tasks)
		heap.Init(q)
		if len(q.tasks) == 0 && !q.more {
			delete(a.keys, key)
		}
	}
}

// comeBack takes the first task of a key, which has room, back into the order.
func (at *parkedAt) comeBack(key string, w *Weights) {
	if one := at.aside.pop(key); one.begun {
		heap.Push(&at.begun, one.parkedTask)
	} else {
		at.fresh.push(at.fresh.of(one.of, w), one.parkedTask)
	}
}

// standAside lets a task wait for its key.
func (at *parkedAt) standAside(k *keyCalls, one asideTask) {
	k.change()
	at.note(one.parkedTask)
	if !at.aside.put(k.key, one) {
		at.forget(one.parkedTask)
	}
}

// note counts a task among those that are known to be parked.
func (at *parkedAt) note(one parkedTask) {
	if one.keyed && !at.known[one.number] {
		if at.ofKey == nil {
			at.ofKey = map[string]int{}
		}
		at.ofKey[one.key]++
	}
	at.known[one.number] = true
}

// forget takes a task out of those.
func (at *parkedAt) forget(one parkedTask) {
	if one.keyed && at.known[one.number] {
		if at.ofKey[one.key]--; at.ofKey[one.key] == 0 {
			delete(at.ofKey, one.key)
		}
	}
	delete(at.known, one.number)
}

// before is the order of parked tasks that wait for the same.
func (t *parkedTask) before(o *parkedTask) bool {
	return cmp.Or(cmp.Compare(t.deadline, o.deadline), cmp.Compare(t.number, o.number)) < 0
}

// keyTakes counts the tasks of each key that are taken at a time, so that no more are read than may go on.
type keyTakes struct {
	a     *agentCalls
	now   core.Instant
	takes map[string]int
}

// full returns the key for which a task has to stand aside; nil: it is taken.
func (k *keyTakes) full(one *parkedTask) *keyCalls {
	if k.a == nil || !one.keyed {
		return nil
	}
	if room := k.a.keyRoom(one.key, k.now); room >= 0 && k.takes[one.key] >= room {
		return k.a.key(one.key)
	}
	k.takes[one.key]++
	return nil
}

// keyTakesAt counts for an agent; the zero one, where it has no keys.
func (s *Shard) keyTakesAt(agent string) (k keyTakes) {
	if a := s.breakers.agents[agent]; a != nil && a.keys != nil {
		k = keyTakes{a: a, now: s.cycle.now, takes: map[string]int{}}
	}
	return k
}

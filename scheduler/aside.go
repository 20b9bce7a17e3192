package scheduler

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"duly.dev/duly/internal/core"
)

// Parked tasks that stand aside: their key has no place, and those of other keys go on.

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

// put lets a task stand aside. Where asideMax do, it takes the place of one of the key that has most; left is what is in the
// store alone then: that one, or the task itself if its key has as many.
func (a *aside) put(key string, one asideTask) (left parkedTask, full bool) {
	if a.keys == nil {
		a.keys = map[string]*asideQueue{}
	}
	q := a.keys[key]
	if q == nil {
		q = &asideQueue{}
		a.keys[key] = q
	}
	if full = a.waiting >= asideMax; full {
		most := a.most()
		if len(most.tasks) < len(q.tasks)+2 {
			q.more = true
			return one.parkedTask, true
		}
		left, most.more = most.Pop().(asideTask).parkedTask, true // at the end of the heap: a late one
		a.waiting--
	}
	heap.Push(q, one)
	a.waiting++
	return left, full
}

// most is the queue of the key that has most.
func (a *aside) most() (most *asideQueue) {
	of := ""
	for key, q := range a.keys {
		if most == nil || len(q.tasks) > len(most.tasks) || len(q.tasks) == len(most.tasks) && key < of {
			most, of = q, key
		}
	}
	return most
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
	if left, full := at.aside.put(k.key, one); full {
		at.forget(left)
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
	if a := s.agents.all[agent]; a != nil && a.keys != nil {
		k = keyTakes{a: a, now: s.cycle.now, takes: map[string]int{}}
	}
	return k
}

package scheduler

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
)

// Parked tasks that stand aside: a pause holds them, or their key has no place, and others go on.

// asideMax bounds the tasks that stand aside at an agent of a partition; further ones are read from the store when their
// key has room and none of it stands aside any more, or when the pauses change.
const asideMax = parkedMax / 4

// asideTask is a parked task with its place in the order.
type asideTask struct {
	parkedTask
	begun bool
	late  bool
	of    flowKey // of one that has not begun
}

// reason is why tasks stand aside: the pauses, or a key.
type reason struct {
	paused bool
	key    string
}

func (r reason) compare(o reason) int {
	if r.paused != o.paused {
		if r.paused {
			return -1
		}
		return 1
	}
	return strings.Compare(r.key, o.key)
}

// asideQueue is a heap of those of one reason.
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

// aside are the parked tasks at one agent of a partition that stand aside.
type aside struct {
	keys    map[reason]*asideQueue
	waiting int
}

// at is how many tasks of a key stand aside.
func (a *aside) at(key reason) int {
	if q := a.keys[key]; q != nil {
		return len(q.tasks)
	}
	return 0
}

// before reports whether the first task of a key is to go on before that of another partition.
func (a *aside) before(other *aside, key reason) bool {
	return a.keys[key].tasks[0].before(&other.keys[key].tasks[0].parkedTask)
}

// put lets a task stand aside. Where asideMax do, it takes the place of one of the key that has most; left is what is in the
// store alone then: that one, or the task itself if its key has as many.
func (a *aside) put(key reason, one asideTask) (left parkedTask, full bool) {
	if a.keys == nil {
		a.keys = map[reason]*asideQueue{}
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
	var of reason
	for key, q := range a.keys {
		if most == nil || len(q.tasks) > len(most.tasks) || len(q.tasks) == len(most.tasks) && key.compare(of) < 0 {
			most, of = q, key
		}
	}
	return most
}

// pop takes the first task of a key.
func (a *aside) pop(key reason) asideTask {
	q := a.keys[key]
	one := heap.Pop(q).(asideTask)
	a.waiting--
	if len(q.tasks) == 0 && !q.more {
		delete(a.keys, key)
	}
	return one
}

// onlyStored reports, once, whether all that there is of a key is in the store.
func (a *aside) onlyStored(key reason) bool {
	q := a.keys[key]
	if q == nil || len(q.tasks) > 0 || !q.more {
		return false
	}
	delete(a.keys, key)
	return true
}

// drop takes the tasks out that gone says, key by key.
func (a *aside) drop(gone func(parkedTask) bool) {
	for _, key := range a.reasons() {
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

// reasons are those for which tasks stand aside, in an order of their own.
func (a *aside) reasons() []reason { return slices.SortedFunc(maps.Keys(a.keys), reason.compare) }

// all takes all of one reason; more: the store has more of them.
func (a *aside) all(of reason) (tasks []asideTask, more bool) {
	q := a.keys[of]
	if q == nil {
		return nil, false
	}
	delete(a.keys, of)
	a.waiting -= len(q.tasks)
	return q.tasks, q.more
}

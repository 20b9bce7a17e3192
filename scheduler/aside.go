package scheduler

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
)

// Parked tasks that stand aside: they are paused, or their key has no place, and the others go on without them.

// asideMax bounds the tasks that stand aside at an agent of a partition. Further ones are left in the store. They are read
// when their key has room and no task of it stands aside any more, or when the pauses change.
const asideMax = parkedMax / 4

// asideTask is a parked task together with where it belongs in the order.
type asideTask struct {
	parkedTask
	begun bool
	late  bool
	// of is the flow of a task that has not begun.
	of flowKey
}

// reason is why a task stands aside: it is paused, or else its key has no place.
type reason struct {
	paused bool
	key    string
}

// compare orders reasons: the pauses first, then the keys by name.
func (r reason) compare(o reason) int {
	if r.paused != o.paused {
		if r.paused {
			return -1
		}
		return 1
	}
	return strings.Compare(r.key, o.key)
}

// asideQueue is a heap of the tasks that stand aside for one reason.
type asideQueue struct {
	tasks []asideTask
	// more is whether further ones are in the store alone.
	more bool
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

// aside holds the parked tasks of one agent and partition that stand aside. waiting counts those in memory.
type aside struct {
	keys    map[reason]*asideQueue
	waiting int
}

// at returns how many tasks in memory stand aside for a reason.
func (a *aside) at(key reason) int {
	if q := a.keys[key]; q != nil {
		return len(q.tasks)
	}
	return 0
}

// before reports whether this partition's first task for a reason is due before the other partition's.
func (a *aside) before(other *aside, key reason) bool {
	return a.keys[key].tasks[0].before(&other.keys[key].tasks[0].parkedTask)
}

// put adds a task. If asideMax are there it evicts one of the reason that has most, or does not take the task
// if its own reason has about as many. full: left is the task that is now in the store alone.
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
		left, most.more = most.Pop().(asideTask).parkedTask, true // the last of the heap is one of the later deadlines
		a.waiting--
	}
	heap.Push(q, one)
	a.waiting++
	return left, full
}

// most returns the longest queue.
func (a *aside) most() (most *asideQueue) {
	var of reason
	for key, q := range a.keys {
		if most == nil || len(q.tasks) > len(most.tasks) || len(q.tasks) == len(most.tasks) && key.compare(of) < 0 {
			most, of = q, key
		}
	}
	return most
}

// pop removes the first task of a reason.
func (a *aside) pop(key reason) asideTask {
	q := a.keys[key]
	one := heap.Pop(q).(asideTask)
	a.waiting--
	if len(q.tasks) == 0 && !q.more {
		delete(a.keys, key)
	}
	return one
}

// onlyStored reports whether all tasks of a reason are in the store alone. It forgets the reason then, so it
// says so once.
func (a *aside) onlyStored(key reason) bool {
	q := a.keys[key]
	if q == nil || len(q.tasks) > 0 || !q.more {
		return false
	}
	delete(a.keys, key)
	return true
}

// drop removes the tasks for which gone returns true.
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

// reasons returns the reasons for which tasks stand aside, in a fixed order.
func (a *aside) reasons() []reason { return slices.SortedFunc(maps.Keys(a.keys), reason.compare) }

// all removes and returns the tasks of one reason. more: further ones are in the store alone.
func (a *aside) all(of reason) (tasks []asideTask, more bool) {
	q := a.keys[of]
	if q == nil {
		return nil, false
	}
	delete(a.keys, of)
	a.waiting -= len(q.tasks)
	return q.tasks, q.more
}

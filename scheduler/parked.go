package scheduler

import (
	"cmp"

	"duly.dev/duly/internal/core"
)

const (
	// parkedMax bounds how many parked tasks of an agent are kept in order in memory: 104 bytes each, and their labels.
	parkedMax = 8192
	// parkedPage is how many parked tasks are read from the store at a time; each has to be loaded to be put in order.
	parkedPage = 256
)

// parkedTask is what memory keeps of a task that is parked at an agent, so that the gate can judge it without
// loading it.
type parkedTask struct {
	number   int64
	deadline core.Instant
	// latest is when it must go on to make its deadline, as Config.Left estimates.
	latest core.Instant
	plan   *planRef
	// steps are the steps that it waits for at this agent.
	steps  core.StepSet
	labels []core.Label
	// keyed is whether the agent's limit has keys; key is this task's.
	keyed bool
	key   string
}

// before orders tasks that wait for the same thing: the earlier deadline first.
func (t *parkedTask) before(o *parkedTask) bool {
	return cmp.Or(cmp.Compare(t.deadline, o.deadline), cmp.Compare(t.number, o.number)) < 0
}

// byDeadline is a heap of parked tasks, the earliest deadline first.
type byDeadline []parkedTask

func (h byDeadline) Len() int { return len(h) }

func (h byDeadline) Less(i, j int) bool { return h[i].before(&h[j]) }

func (h byDeadline) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byDeadline) Push(x any) { *h = append(*h, x.(parkedTask)) }

// Pop implements heap.Interface.
func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = parkedTask{}
	*h = (*h)[:last]
	return x
}

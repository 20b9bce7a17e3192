package scheduler

import (
	"reflect"
	"sync"
	"sync/atomic"

	"duly.dev/duly/internal/core"
)

// Memory bounds the bytes of inputs and results that the partitions of a node hold: of
// tasks in flight, and of submissions that were read and wait for a commit cycle. Over it no new
// submission is read and no parked task taken up; what has begun goes on. The zero value
// and nil have no bound. It is safe for concurrent use.
type Memory struct {
	max  int64
	used atomic.Int64

	mu      sync.Mutex
	readers []func() // called when there is room again
}

// NewMemory makes a bound of so many bytes; 0: none.
func NewMemory(bytes int64) *Memory { return &Memory{max: bytes} }

// Used is how many bytes are held.
func (m *Memory) Used() int64 {
	if m == nil {
		return 0
	}
	return m.used.Load()
}

// over reports whether the bound is reached.
func (m *Memory) over() bool { return m != nil && m.max > 0 && m.used.Load() >= m.max }

// ample reports whether less than half of the bound is held.
func (m *Memory) ample() bool { return m == nil || m.max <= 0 || m.used.Load() < m.max/2 }

// Bounds of the replies that wait for one commit cycle of a shard.
const (
	repliesLeast      = 64 << 20 // bytes
	repliesPart       = 4        // replies may take the node's memory divided by this, if that is more
	replyBytesBesides = 256      // bytes of a reply beside its texts, roughly
)

// replies returns how many bytes of replies may wait for a commit cycle of one shard.
func (m *Memory) replies() int64 {
	if m == nil {
		return repliesLeast
	}
	return max(repliesLeast, m.max/repliesPart)
}

// taskBytesMost is the largest size of a task that has no results yet.
const taskBytesMost = core.InputBytesMax + taskBytesBesides

// fits returns how many of so many tasks can be loaded, assuming the largest size for each. It is 0 when the
// bound is reached, otherwise at least 1: one large task must not wait for ever.
func (m *Memory) fits(tasks int) int {
	if m == nil || m.max <= 0 {
		return tasks
	}
	if m.used.Load() >= m.max {
		return 0
	}
	return m.within(m.max, tasks)
}

// fitsAwaited is fits for tasks for which others wait in memory: an awaitedPart more is theirs, and one fits at least. Otherwise
// what holds all memory would wait for ever.
func (m *Memory) fitsAwaited(tasks int) int {
	if m == nil || m.max <= 0 {
		return tasks
	}
	return m.within(m.max+m.max/awaitedPart, tasks)
}

// within returns how many of so many tasks can be loaded until so much is held, at least 1.
func (m *Memory) within(most int64, tasks int) int {
	return int(min(int64(tasks), max(1, (most-m.used.Load())/taskBytesMost)))
}

// awaitedPart: see fitsAwaited.
const awaitedPart = 8

// charge adds bytes to what is held; negative bytes are given back. When that makes room it calls the
// readers, so the caller must not hold a lock that a reader takes.
func (m *Memory) charge(bytes int64) {
	if m == nil || bytes == 0 {
		return
	}
	now := m.used.Add(bytes)
	if m.max <= 0 || bytes > 0 || now >= m.max || now-bytes < m.max {
		return
	}
	m.mu.Lock()
	readers := m.readers
	m.mu.Unlock()
	for _, call := range readers {
		call()
	}
}

// onRoom registers a function that is called each time the bound stops being reached.
func (m *Memory) onRoom(call func()) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readers = append(m.readers[:len(m.readers):len(m.readers)], call)
}

// taskBytesBesides is roughly what a task occupies beside its input, results and labels, in bytes.
const taskBytesBesides = 1 << 10

// stepBytes is what a step of a task in flight occupies beside its result; stepsBesides of them are among taskBytesBesides.
var stepBytes = int(reflect.TypeFor[core.StepState]().Size())

const stepsBesides = 5

// stepsBytes is what so many steps occupy beside that.
func stepsBytes(steps int) int { return max(0, steps-stepsBesides) * stepBytes }

// taskBytes returns how much memory a task in flight is charged with.
func taskBytes(t *core.Task) int64 {
	n := taskBytesBesides + len(t.Input) + stepsBytes(len(t.Steps))
	for i := range t.Earlier {
		n += len(t.Earlier[i])
	}
	for i := range t.Steps {
		n += len(t.Steps[i].Result)
	}
	return int64(n + labelBytes(t.Labels))
}

func labelBytes(labels []core.Label) (n int) {
	for i := range labels {
		n += len(labels[i].Key) + len(labels[i].Value)
	}
	return n
}

// mailBytes returns how much memory a message of the task stream is charged with until it is applied.
func mailBytes(m *TaskMail) (n int64) {
	for i := range m.Submissions {
		n += taskBytesBesides + int64(len(m.Submissions[i].Input)+labelBytes(m.Submissions[i].Labels))
	}
	return n
}

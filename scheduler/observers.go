package scheduler

import (
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// Observer is shown what commits wrote and cannot influence it.
type Observer interface {
	// Name is unique among the observers of a node.
	Name() string
	// Committed is called with one commit at a time, on a goroutine of the observer's own, so that it never
	// delays a commit. It must not keep c, nor change it. If it is too slow it misses commits, which is
	// counted and reported. If it panics it is not called again.
	Committed(c *Committed) error
}

// Committed is a copy of what one commit wrote, for all observers the same. They must not change it.
type Committed struct {
	Writes []Observed

	// bytes bounds what waits in queues. users counts the observers that still read it; the last one returns
	// its memory.
	bytes   int
	users   atomic.Int32
	tasks   []core.Task
	steps   []core.StepState
	records []core.Record
}

// Observed is what a commit wrote of one task.
type Observed struct {
	core.TaskWrite
	// Plan is nil if it is not known here.
	Plan *core.Plan
}

// All yields the writes with their plans; a plan may be nil.
func (c *Committed) All() iter.Seq2[*core.Plan, *core.TaskWrite] {
	return func(yield func(*core.Plan, *core.TaskWrite) bool) {
		for i := range c.Writes {
			if w := &c.Writes[i]; !yield(w.Plan, &w.TaskWrite) {
				return
			}
		}
	}
}

const (
	// observedMost and observedBytesMost bound the commits that wait for one observer; further ones are missed.
	observedMost      = 256
	observedBytesMost = 2 * core.BatchBytesMax
	// observersEnd is how long removing an observer waits for it to finish its queue.
	observersEnd = time.Second
)

// Observers is the set of a node's observers, with those that were switched off because they panicked. It is safe for
// concurrent use. A nil set is empty, and its Guard guards nothing.
type Observers struct {
	log *slog.Logger
	// report is told an observer's state, nil when it is well. It is called from any goroutine and must not
	// block.
	report func(name string, err error)

	mu sync.Mutex
	// off names what has panicked; it stays off until the process ends.
	off  map[string]bool
	all  atomic.Pointer[[]*observing]
	pool sync.Pool
}

// observing is one observer with the queue of commits that wait for it.
type observing struct {
	of    *Observers
	o     Observer
	queue chan *Committed
	// bytes is the size of what is in the queue.
	bytes atomic.Int64
	ended chan struct{}

	// mu guards what follows, and whether the queue is closed.
	mu     sync.Mutex
	closed bool
	// missed counts the commits left out since the observer last caught up.
	missed int64
	failed bool
}

// NewObservers makes a set without any. report may be nil.
func NewObservers(log *slog.Logger, report func(name string, err error)) *Observers {
	if report == nil {
		report = func(string, error) {}
	}
	return &Observers{log: log, report: report, off: map[string]bool{}}
}

// Add shows an observer every commit from now on, until remove is called. remove waits for the observer to
// finish its queue, but no longer than observersEnd.
func (s *Observers) Add(o Observer) (remove func()) {
	w := &observing{of: s, o: o, queue: make(chan *Committed, observedMost), ended: make(chan struct{})}
	s.change(func(all []*observing) []*observing { return append(all, w) })
	go w.run()
	return sync.OnceFunc(func() {
		s.change(func(all []*observing) []*observing {
			return slices.DeleteFunc(all, func(x *observing) bool { return x == w })
		})
		w.close()
		late := time.NewTimer(observersEnd)
		defer late.Stop()
		select {
		case <-w.ended:
		case <-late.C: // an observer must not keep a node from stopping
		}
	})
}

// change replaces the list of observers. The list is copied, so that a commit reads it without a lock.
func (s *Observers) change(f func([]*observing) []*observing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := f(slices.Clone(s.observing()))
	s.all.Store(&all)
}

func (s *Observers) observing() []*observing {
	if s == nil {
		return nil
	}
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Guard calls do, which belongs to something that only watches. If do panics, what has that name is switched
// off until the process ends, which is logged and reported once; the node goes on.
func (s *Observers) Guard(name string, do func()) {
	if s == nil {
		do()
		return
	}
	if s.isOff(name) {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			s.switchOff(name, p, debug.Stack())
		}
	}()
	do()
}

func (s *Observers) isOff(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.off[name]
}

func (s *Observers) switchOff(name string, why any, stack []byte) {
	s.mu.Lock()
	was := s.off[name]
	s.off[name] = true
	s.mu.Unlock()
	if was {
		return
	}
	s.log.Error("what only watches has panicked; it is switched off until this node is started again, and the node goes on", "observer", name, "panic", fmt.Sprint(why), "stack", string(stack))
	s.report(name, fmt.Errorf("%s is switched off until this node is started again: it panicked: %v", name, why))
}

// run shows the observer its commits until the queue is closed and empty.
func (w *observing) run() {
	defer close(w.ended)
	for c := range w.queue {
		w.bytes.Add(-int64(c.bytes))
		w.of.Guard(w.o.Name(), func() { w.outcome(w.o.Committed(c)) })
		w.of.release(c)
	}
}

// outcome reports an error of the observer, or that it is well again.
func (w *observing) outcome(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.failed = true
		w.of.report(w.o.Name(), fmt.Errorf("%s: %w", w.o.Name(), err))
	case w.failed || w.missed > 0 && len(w.queue) == 0:
		w.failed, w.missed = false, 0
		w.of.report(w.o.Name(), nil)
	}
}

// put queues a commit, and reports whether it did; otherwise the commit counts as missed. A single commit
// above the bound is queued if it is the only one.
func (w *observing) put(c *Committed) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.of.isOff(w.o.Name()) {
		return false
	}
	if bytes := w.bytes.Add(int64(c.bytes)); bytes <= observedBytesMost || bytes == int64(c.bytes) {
		select {
		case w.queue <- c:
			return true
		default:
		}
	}
	w.bytes.Add(-int64(c.bytes))
	w.missed++
	if n := w.missed; n&(n-1) == 0 { // report at powers of two, as it may be behind for long
		w.of.report(w.o.Name(), fmt.Errorf("%s does not keep up with the commits: %d were left out so far", w.o.Name(), n))
	}
	return false
}

func (w *observing) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	close(w.queue)
}

// committedPlans tells, for a write of a batch, whether the commit took it, and the plan of its task; nil:
// not known.
type committedPlans interface {
	planOf(w *core.TaskWrite) (plan *core.Plan, stored bool)
}

// observe copies what a commit wrote and queues the copy for each observer. The shard calls it after the
// commit.
func (s *Observers) observe(writes []core.TaskWrite, in committedPlans) {
	all := s.observing()
	if len(all) == 0 {
		return
	}
	c := s.take(writes)
	for i := range writes {
		w := &writes[i]
		if plan, stored := in.planOf(w); stored && len(w.Records) > 0 {
			c.add(plan, w)
		}
	}
	c.users.Store(int32(len(all)) + 1)
	for _, w := range all {
		if !w.put(c) {
			s.release(c)
		}
	}
	s.release(c)
}

// take returns memory for a copy of these writes. It is large enough from the start, because add takes the
// address of elements, so the slices must not move while they are filled.
func (s *Observers) take(writes []core.TaskWrite) *Committed {
	c, _ := s.pool.Get().(*Committed)
	if c == nil {
		c = &Committed{}
	}
	steps, records := 0, 0
	for i := range writes {
		steps += len(writes[i].Task.Steps)
		records += len(writes[i].Records)
	}
	c.Writes, c.tasks = slices.Grow(c.Writes, len(writes)), slices.Grow(c.tasks, len(writes)) // see above: they must not move
	c.steps, c.records = slices.Grow(c.steps, steps), slices.Grow(c.records, records)
	return c
}

// release returns a copy's memory to the pool when its last user has released it.
func (s *Observers) release(c *Committed) {
	if c.users.Add(-1) > 0 {
		return
	}
	clear(c.Writes)
	clear(c.tasks)
	clear(c.steps)
	clear(c.records)
	c.Writes, c.tasks, c.steps, c.records, c.bytes = c.Writes[:0], c.tasks[:0], c.steps[:0], c.records[:0], 0
	s.pool.Put(c)
}

// add copies one write, because its task goes on changing. Payloads are shared: nobody changes those.
func (c *Committed) add(plan *core.Plan, w *core.TaskWrite) {
	one := Observed{TaskWrite: *w, Plan: plan}
	c.tasks = append(c.tasks, *w.Task)
	one.Task = &c.tasks[len(c.tasks)-1]
	from := len(c.steps)
	c.steps = append(c.steps, w.Task.Steps...)
	if w.Task.Steps != nil {
		one.Task.Steps = c.steps[from:len(c.steps):len(c.steps)]
	}
	from = len(c.records)
	c.records = append(c.records, w.Records...)
	one.Records = c.records[from:len(c.records):len(c.records)]
	c.Writes = append(c.Writes, one)
	c.bytes += w.Size() + len(w.Task.Input) + stepsBytes(len(w.Task.Steps))
}

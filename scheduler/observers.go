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

// Observer only watches what is committed.
type Observer interface {
	// Name is unique among the observers of a node.
	Name() string
	// Committed takes what one commit wrote, one commit at a time and off the way of commits, and keeps nothing of it. An
	// observer that is slow misses commits, which is counted and told. One that panics is called no more.
	Committed(c *Committed) error
}

// Committed is a copy of what one commit wrote, for all observers the same. They must not change it.
type Committed struct {
	Writes []Observed

	bytes   int
	users   atomic.Int32 // observers that have not done with it
	tasks   []core.Task
	steps   []core.StepState
	records []core.Record
}

// Observed is what a commit wrote of one task.
type Observed struct {
	core.TaskWrite
	Plan *core.Plan // nil: it is not known
}

// All are the writes with their plans; a plan may be nil.
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
	// Commits that wait for one observer; more are left out.
	observedMost      = 256
	observedBytesMost = 2 * core.BatchBytesMax
	// observersEnd is how long the end of an observer waits for its last commits.
	observersEnd = time.Second
)

// Observers are those of a node, and which of them are switched off. They are safe for concurrent use. A nil one has none, and
// guards nothing.
type Observers struct {
	log    *slog.Logger
	report func(name string, err error) // how an observer is now; from any goroutine, and must not block

	mu   sync.Mutex
	off  map[string]bool // until the process ends
	all  atomic.Pointer[[]*observing]
	pool sync.Pool
}

// observing is one observer and the commits that wait for it.
type observing struct {
	of    *Observers
	o     Observer
	queue chan *Committed
	bytes atomic.Int64 // in the queue
	ended chan struct{}

	mu     sync.Mutex // of what follows, and of whether the queue is closed
	closed bool
	missed int64 // commits in a row of misses; 0: it has caught up since
	failed bool
}

// NewObservers makes a set without any. report may be nil.
func NewObservers(log *slog.Logger, report func(name string, err error)) *Observers {
	if report == nil {
		report = func(string, error) {}
	}
	return &Observers{log: log, report: report, off: map[string]bool{}}
}

// Add has an observer see each commit from now on, until remove is called, which waits for it for a bounded time.
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
		case <-late.C: // what only watches does not keep a node from its end
		}
	})
}

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

// Guard calls what only watches, unless that is switched off. If it panics it is switched off until the process ends,
// and that is told once.
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

// run shows the observer its commits until the queue is closed.
func (w *observing) run() {
	defer close(w.ended)
	for c := range w.queue {
		w.bytes.Add(-int64(c.bytes))
		w.of.Guard(w.o.Name(), func() { w.outcome(w.o.Committed(c)) })
		w.of.release(c)
	}
}

// outcome tells what a call came to, and that the observer has caught up.
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

// put hands a commit over, or counts it as missed.
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
	if n := w.missed; n&(n-1) == 0 { // it may be behind for long
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

// committedPlans says of a write whether the commit took it, and the plan of its task; nil: that is not known.
type committedPlans interface {
	planOf(w *core.TaskWrite) (plan *core.Plan, stored bool)
}

// observe shows the observers what a commit wrote.
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

// take is memory for a copy of those writes.
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
	c.Writes, c.tasks = slices.Grow(c.Writes, len(writes)), slices.Grow(c.tasks, len(writes)) // none moves while it is filled
	c.steps, c.records = slices.Grow(c.steps, steps), slices.Grow(c.records, records)
	return c
}

// release gives the memory of a copy back when the last who used it has done.
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

// add copies one write: its task goes on changing. Payloads are shared, because nobody changes those.
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
	c.bytes += w.Size() + len(w.Task.Input)
}

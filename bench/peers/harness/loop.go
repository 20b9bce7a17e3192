package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// handlerRuns counts how often a step's handler began, in this process.
var handlerRuns atomic.Int64

// Ran counts one run of a handler. It is a function of the package because some
// libraries find handlers by name and give them nothing of ours.
func Ran() { handlerRuns.Add(1) }

// loop keeps a number of tasks in flight: a task is submitted when another one
// has ended. So the rate is what the library can do, and no queue grows.
type loop struct {
	peer       Peer
	steps      int
	tasks      int // measured, at most; 0: no bound
	seconds    time.Duration
	warmup     time.Duration
	batch      int
	submitters int

	slots chan struct{} // free places in flight
	next  atomic.Int64  // number of the latest task
	full  chan struct{} // closed when -tasks have ended in the measured seconds

	mu        sync.Mutex
	begun     map[int]time.Time // in flight, by number
	over      map[int]struct{}  // ended, by number: an end that comes again is a double
	accepted  int
	errors    int
	doubled   int
	problem   error // the first
	measuring bool
	submit    []time.Duration
	endToEnd  []time.Duration
	runsAtNew int64
}

func newLoop(peer Peer, spec Spec, set Settings) *loop {
	l := &loop{
		peer: peer, steps: set.Steps, tasks: set.Tasks, batch: max(spec.Batch, 1), submitters: spec.Submitters,
		seconds: time.Duration(set.Seconds * float64(time.Second)), warmup: time.Duration(set.Warmup * float64(time.Second)),
		slots: make(chan struct{}, set.Workers), full: make(chan struct{}),
		begun: map[int]time.Time{}, over: map[int]struct{}{}, runsAtNew: handlerRuns.Load(),
	}
	if l.submitters == 0 {
		l.submitters = set.Workers
	}
	for range set.Workers {
		l.slots <- struct{}{}
	}
	return l
}

// ended takes the report of an end and frees the task's place.
func (l *loop) ended(number int, err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	begun, ok := l.begun[number]
	if !ok {
		if _, twice := l.over[number]; twice {
			l.doubled++
		} else {
			l.fail(fmt.Errorf("the end of task %d, which was never submitted", number))
		}
		return
	}
	delete(l.begun, number)
	l.over[number] = struct{}{}
	switch {
	case err != nil:
		l.fail(fmt.Errorf("task %d: %w", number, err))
	case l.measuring:
		l.endToEnd = append(l.endToEnd, now.Sub(begun))
		if len(l.endToEnd) == l.tasks {
			l.measuring = false
			close(l.full)
		}
	}
	l.slots <- struct{}{}
}

// fail counts an error and keeps the first. The caller holds the lock.
func (l *loop) fail(err error) {
	l.errors++
	if l.problem == nil {
		l.problem = err
	}
}

// submitAll submits until the context ends.
func (l *loop) submitAll(ctx context.Context) {
	for {
		n := l.take(ctx)
		if n == 0 {
			return
		}
		tasks := make([]Task, n)
		first := int(l.next.Add(int64(n))) - n + 1
		begun := time.Now()
		l.mu.Lock()
		for i := range tasks {
			l.begun[first+i] = begun
		}
		l.mu.Unlock()
		for i := range tasks {
			tasks[i] = NewTask(first + i)
		}
		// A submission that has begun is waited for: whether it was accepted must be known.
		err := l.peer.Submit(context.WithoutCancel(ctx), tasks)
		l.answered(tasks, time.Since(begun), err)
		if err != nil {
			return // the run has failed: nothing is gained by more of it
		}
	}
}

// take waits for a free place and takes all there are, up to a batch: how large
// batches are follows from the load, as with a caller who collects what has come
// while the last batch was under way.
func (l *loop) take(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case <-l.slots:
	}
	if ctx.Err() != nil {
		l.slots <- struct{}{}
		return 0
	}
	n := 1
	for n < l.batch {
		select {
		case <-l.slots:
			n++
		default:
			return n
		}
	}
	return n
}

func (l *loop) answered(tasks []Task, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.fail(fmt.Errorf("submit: %w", err))
		for _, t := range tasks {
			if _, waiting := l.begun[t.Number]; waiting {
				delete(l.begun, t.Number)
				l.slots <- struct{}{}
			}
		}
		return
	}
	l.accepted += len(tasks)
	if l.measuring {
		for range tasks {
			l.submit = append(l.submit, took)
		}
	}
}

// usage is what was spent up to a moment.
type usage struct {
	at       time.Time
	client   time.Duration
	database time.Duration
	wal      float64
}

// meter reads usage. It is the store's, and a test's own.
type meter interface {
	// settle is called once, between warm-up and measurement.
	settle(ctx context.Context) error
	usage(ctx context.Context) (usage, error)
}

// measured is what the measured seconds were.
type measured struct {
	from, to usage
}

// measure offers load: first the warm-up, then the measured seconds.
func (l *loop) measure(ctx context.Context, m meter) (measured, error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	var submitting sync.WaitGroup
	for range l.submitters {
		submitting.Go(func() { l.submitAll(load) })
	}
	defer submitting.Wait()
	defer stop() // before the wait
	if err := wait(ctx, l.warmup, nil); err != nil {
		return measured{}, err
	}
	if err := m.settle(ctx); err != nil {
		return measured{}, err
	}
	from, err := m.usage(ctx)
	if err != nil {
		return measured{}, err
	}
	l.mu.Lock()
	l.measuring = true
	from.at = time.Now()
	l.mu.Unlock()
	if err := wait(ctx, l.seconds, l.full); err != nil {
		return measured{}, err
	}
	l.mu.Lock()
	l.measuring = false
	at := time.Now()
	l.mu.Unlock()
	to, err := m.usage(ctx)
	if err != nil {
		return measured{}, err
	}
	to.at = at
	return measured{from: from, to: to}, nil
}

func wait(ctx context.Context, d time.Duration, or <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-or:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain waits until nothing is in flight, and gives up after drainLimit: what has
// not ended then is lost by the books.
func (l *loop) drain(ctx context.Context) time.Duration {
	begun := time.Now()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	for range cap(l.slots) {
		select {
		case <-l.slots:
		case <-limit.C:
			l.mu.Lock()
			l.fail(errors.New("tasks have not ended in time"))
			l.mu.Unlock()
			return time.Since(begun)
		case <-ctx.Done():
			return time.Since(begun)
		}
	}
	return time.Since(begun)
}

// books is what the database says of the whole run.
type books struct {
	known, complete, doubled int
}

// result puts together what the loop, the meter and the books say.
func (l *loop) result(m measured, b books) *Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := len(l.endToEnd)
	seconds := m.to.at.Sub(m.from.at).Seconds()
	client, database := m.to.client-m.from.client, m.to.database-m.from.database
	r := &Result{
		Seconds: round(seconds, 3), Accepted: l.accepted, Processed: b.complete,
		Error: l.errors, Lost: l.accepted - b.complete, Doubled: max(l.doubled, b.doubled) + max(b.known-l.accepted, 0),
		Measured: ended, HandlerRuns: handlerRuns.Load() - l.runsAtNew,
		TasksPerS: round(float64(ended)/seconds, 1), StepsPerS: round(float64(ended*l.steps)/seconds, 1),
		Submit: quantiles(l.submit), EndToEnd: quantiles(l.endToEnd),
		Cores:      round((client+database).Seconds()/seconds, 2),
		CPUPerTask: CPU{Client: per(micros(client), ended)},
		WALPerTask: per(m.to.wal-m.from.wal, ended),
	}
	if m.from.database > 0 {
		perTask, total := per(micros(database), ended), per(micros(client+database), ended)
		r.CPUPerTask.Database, r.CPUPerTask.Total = &perTask, &total
	}
	return r
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

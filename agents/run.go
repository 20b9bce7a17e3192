package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// stopMax is how long Run waits, after it has cancelled the handlers that outlived
// the drain, for them to return.
const stopMax = time.Second

// Run serves the registered steps with the commands of source until ctx ends.
// Then it takes no more, finishes the commands in flight within DrainMax, cancels
// the rest and answers it 503. It returns an error when the source failed, or when
// handlers that ignore their contexts were still running at the end.
func (r *Runtime) Run(ctx context.Context, source Source) error {
	if len(r.agents) == 0 {
		return errors.New("agent serves no step")
	}
	if r.running.Swap(true) {
		return errors.New("agent runs already")
	}
	defer r.running.Store(false)

	// Work outlives ctx, which only ends the intake.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	d := r.newDispatcher(work)
	err := source.Serve(ctx, r.Agents(), d.accept)
	if err != nil {
		err = fmt.Errorf("agents %v: %w", r.agents, err)
	}
	d.drain()
	left := d.wait(r.config.DrainMax)
	if left > 0 {
		cancel()
		left = d.wait(stopMax)
	}
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("agents %v: %d commands still at work after the drain", r.agents, left))
	}
	return err
}

// dispatcher runs the commands of one Run: each on a goroutine, at most RunningMax of
// an agent at a time. The others wait in their agent's queue, without a goroutine.
type dispatcher struct {
	runtime *Runtime
	ctx     context.Context // of the work

	mu       sync.Mutex
	queues   map[string]*queue // by agent; the map does not change
	inFlight int               // commands that run or wait, of all queues
	draining bool              // nothing more is accepted
	drained  chan struct{}     // closed when draining and nothing is in flight
}

// queue counts and keeps the commands of one agent. Commands wait only while
// RunningMax run: the one that ends gives its place to the first that waits.
type queue struct {
	running int   // including those whose Starter has returned and whose done is awaited
	waiting []job // first in, first out
}

// job is one command in flight.
type job struct {
	cmd     *core.Command
	respond Respond
	now     core.Instant // when it was read
}

func (r *Runtime) newDispatcher(ctx context.Context) *dispatcher {
	d := &dispatcher{runtime: r, ctx: ctx, queues: map[string]*queue{}, drained: make(chan struct{})}
	for _, agent := range r.agents {
		d.queues[agent] = &queue{}
	}
	return d
}

// accept starts a command, puts it into its agent's queue, or refuses it.
func (d *dispatcher) accept(cmd *core.Command, respond Respond) {
	config := &d.runtime.config
	j := job{cmd: cmd, respond: respond, now: config.Time.Now()}
	q := d.queues[cmd.Agent]
	if q == nil { // the source was not asked for it
		d.send(j, fail(cmd, &Error{Code: codeUnknownStep, Err: errors.New("this agent is not served here")}))
		return
	}
	d.mu.Lock()
	starts := q.running < config.RunningMax
	switch {
	case starts:
		q.running++
	case len(q.waiting) < config.WaitingMax:
		q.waiting = append(q.waiting, j)
	default:
		d.mu.Unlock()
		d.send(j, fail(cmd, &Error{Code: core.CodeTooMany, Err: fmt.Errorf("agent %s is full: %d running, %d waiting", cmd.Agent, config.RunningMax, config.WaitingMax)}))
		return
	}
	d.inFlight++
	d.mu.Unlock()
	if starts {
		go d.work(q, j)
	}
}

// work runs a command, and after it those that wait in its queue.
func (d *dispatcher) work(q *queue, j job) {
	for more := true; more; j, more = d.next(q) {
		handlers := d.runtime.handlers(j.cmd)
		if start := handlers.starter(j.cmd); start != nil {
			d.begin(q, j, handlers, start)
			return // the command keeps its place until it is done: see started.end
		}
		if reply, answered := d.runtime.handle(d.ctx, handlers, j.now, j.cmd); answered {
			d.send(j, reply)
		}
	}
}

// next counts one command out and gives its place to the first that waits, if any.
func (d *dispatcher) next(q *queue) (j job, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
	d.closeDrained()
	if len(q.waiting) == 0 {
		q.running--
		return job{}, false
	}
	j = q.waiting[0]
	q.waiting[0] = job{} // frees the command before append moves what is left
	q.waiting = q.waiting[1:]
	return j, true
}

// drain says that accept will not be called again.
func (d *dispatcher) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	d.closeDrained()
}

// closeDrained closes drained when the last command has ended. d.mu is held.
func (d *dispatcher) closeDrained() {
	if d.draining && d.inFlight == 0 {
		close(d.drained)
	}
}

// wait returns as soon as nothing is in flight, or after limit with what still is.
func (d *dispatcher) wait(limit time.Duration) (left int) {
	ctx, cancel := d.runtime.config.Time.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case <-d.drained:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inFlight
}

func (d *dispatcher) send(j job, reply core.Reply) {
	if err := j.respond(reply); err != nil {
		// The scheduler gets no reply and acts on that at complete-by.
		d.runtime.config.Log.Warn("reply not sent", "agent", j.cmd.Agent, "task", j.cmd.Task, "step", j.cmd.Step, "error", err)
	}
}

package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// dispatcher runs the commands of one Run. A command waits in its agent's queue until a
// worker takes it; a worker takes commands until none waits. So quick commands that come
// together share few workers, and those that wait have no goroutine.
//
// A goroutine that is bound to its command would be simpler and cost more, because each
// has to grow its stack. Processor time of a command, 5 alternating runs, medians, bound
// and shared: 8.6 and 4.6 µs for a handler that decodes its input and encodes a result,
// 11.4 and 9.5 µs for one that then waits; a task of 5 commands costs some 150 µs. Command:
// go test ./agents -bench BenchmarkRun -cpu 1; see bench/notebook/2026-11-25-agents.md.
type dispatcher struct {
	runtime *Runtime
	ctx     context.Context // of the work

	mu       sync.Mutex
	queues   map[string]*queue // by agent; the map does not change
	inFlight int               // commands accepted and not ended, of all queues
	workers  int               // goroutines of all queues
	draining bool              // nothing more is accepted
	drained  chan struct{}     // closed when draining, nothing is in flight and no worker is left
}

// queue is the commands of one agent and the goroutines that run them.
type queue struct {
	waiting []job // first in, first out
	running int   // commands taken and not ended, also those whose Starter has returned
	workers int   // goroutines; each takes a command, if one may run, before it ends
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

// accept puts a command into its agent's queue, or refuses it.
func (d *dispatcher) accept(cmd *core.Command, respond Respond) {
	config := &d.runtime.config
	j := job{cmd: cmd, respond: respond, now: config.Time.Now()}
	q := d.queues[cmd.Agent]
	if q == nil { // the source was not asked for it
		d.send(j, fail(cmd, &Error{Code: codeUnknownStep, Err: errors.New("this agent is not served here")}))
		return
	}
	d.mu.Lock()
	if q.running+len(q.waiting) >= config.RunningMax+config.WaitingMax {
		d.mu.Unlock()
		d.send(j, fail(cmd, &Error{Code: core.CodeTooMany, Err: fmt.Errorf("agent %s is full: running_max %d, waiting_max %d", cmd.Agent, config.RunningMax, config.WaitingMax)}))
		return
	}
	q.waiting = append(q.waiting, j)
	d.inFlight++
	d.wake(q)
	d.mu.Unlock()
}

// wake starts one more worker, if a command may run. d.mu is held.
func (d *dispatcher) wake(q *queue) {
	most := d.runtime.config.RunningMax
	if len(q.waiting) > 0 && q.running < most && q.workers < most {
		q.workers++
		d.workers++
		go d.work(q)
	}
}

// work is a worker.
func (d *dispatcher) work(q *queue) {
	for j, ok := d.take(q); ok; j, ok = d.take(q) {
		if d.run(q, j) {
			d.mu.Lock()
			d.out(q)
			d.mu.Unlock()
		}
	}
}

// take gives a worker the first command that waits; false: none may run, the worker ends.
func (d *dispatcher) take(q *queue) (j job, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(q.waiting) == 0 || q.running >= d.runtime.config.RunningMax {
		q.workers--
		d.workers--
		d.closeDrained()
		return job{}, false
	}
	j = q.waiting[0]
	q.waiting[0] = job{} // frees the command before append moves what is left
	q.waiting = q.waiting[1:]
	q.running++
	return j, true
}

// run runs a command; false: it was begun, and started.end counts it out.
func (d *dispatcher) run(q *queue, j job) (ended bool) {
	handlers := d.runtime.handlers(j.cmd)
	if start := handlers.starter(j.cmd); start != nil {
		d.begin(q, j, handlers, start)
		return false
	}
	if reply, answered := d.runtime.handle(d.ctx, handlers, j.now, j.cmd); answered {
		d.send(j, reply)
	}
	return true
}

// out counts one command out. d.mu is held.
func (d *dispatcher) out(q *queue) {
	q.running--
	d.inFlight--
	d.closeDrained()
}

// drain says that accept will not be called again.
func (d *dispatcher) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	d.closeDrained()
}

// closeDrained closes drained when the last command and the last worker have ended. d.mu is held.
func (d *dispatcher) closeDrained() {
	if d.draining && d.inFlight == 0 && d.workers == 0 {
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

package agents

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// stopMax is how long Run waits, after it has cancelled the handlers that
// outlived the drain, for them to notice.
const stopMax = time.Second

// Run serves the registered steps with the commands of source until ctx ends.
// Then it takes no more, finishes what is in hand within DrainMax, cancels the
// rest and answers it 503. It returns an error when the source failed, or when
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
	hand := r.newHand(work)
	defer hand.close()
	err := source.Serve(ctx, r.Agents(), hand.accept)
	if err != nil {
		err = fmt.Errorf("agents %v: %w", r.agents, err)
	}
	left := r.wait(hand, r.config.DrainMax)
	if left > 0 {
		cancel()
		left = r.wait(hand, stopMax)
	}
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("agents %v: %d commands still at work after the drain", r.agents, left))
	}
	return err
}

// freeMax bounds the goroutines of an agent that wait for a command: each has a
// stack that the garbage collector looks at.
const freeMax = 1024

// spareFor is how long a goroutine that waits may be of no use before it ends.
const spareFor = 10 * time.Second

// wait returns as soon as nothing is in hand, or after d with what still is.
func (r *Runtime) wait(hand *hand, d time.Duration) (left int) {
	ctx, cancel := r.config.Time.WithTimeout(context.Background(), d)
	defer cancel()
	select {
	case <-hand.idle():
		return 0
	case <-ctx.Done():
		return hand.size()
	}
}

// hand is the work in hand of one Run. Its goroutines are as many as commands
// run, at the highest: one that has nothing to do waits for the next command,
// because a new goroutine would have to grow its stack for each. Those that a while
// had no use for end: see lane.trim.
type hand struct {
	runtime *Runtime
	ctx     context.Context
	wake    chan struct{} // has an element when a job has no goroutine
	started chan struct{} // closed when start has ended

	mu     sync.Mutex
	lanes  map[string]*lane
	count  int           // commands in hand, of all lanes
	empty  chan struct{} // closed when count falls to 0; nil while nobody asks
	closed bool
}

// lane is one agent's part of the hand.
type lane struct {
	running int
	free    []chan job // goroutines that wait, the last one first: its stack is warm
	spare   int        // of them, how many have not been needed since the last trim
	trimmed core.Instant
	waiting []job // first in, first out
	head    int   // of waiting
}

// job is one command in hand.
type job struct {
	cmd     *core.Command
	respond Respond
	now     core.Instant // when it was read
}

func (r *Runtime) newHand(ctx context.Context) *hand {
	h := &hand{runtime: r, ctx: ctx, lanes: map[string]*lane{}, wake: make(chan struct{}, 1), started: make(chan struct{})}
	for _, agent := range r.agents {
		h.lanes[agent] = &lane{}
	}
	go h.start()
	return h
}

// accept takes a job in hand, or refuses it. Who runs it is decided a moment
// later: see start.
func (h *hand) accept(cmd *core.Command, respond Respond) {
	j := job{cmd: cmd, respond: respond, now: h.runtime.config.Time.Now()}
	config := &h.runtime.config
	h.mu.Lock()
	l := h.lanes[cmd.Agent]
	if l != nil && l.running+l.waits() < config.RunningMax+config.WaitingMax {
		l.push(j)
		h.count++
		h.mu.Unlock()
		h.wakeUp()
		return
	}
	h.mu.Unlock()
	if l == nil { // the source brought what nobody asked for
		h.send(j, fail(cmd, &Error{Code: codeUnknownStep, Err: errors.New("this agent is not served here")}))
		return
	}
	h.send(j, fail(cmd, &Error{Code: core.CodeTooMany, Err: fmt.Errorf("agent %s is full: %d running, %d waiting", cmd.Agent, config.RunningMax, config.WaitingMax)}))
}

// start finds a goroutine for every job that has none, until the hand is closed.
// Before each it lets others run: handlers that end at once leave a goroutine
// that takes the next job by itself, and a burst of quick commands is then done
// by a few goroutines instead of one each.
func (h *hand) start() {
	defer close(h.started)
	for range h.wake {
		for more := true; more; {
			runtime.Gosched()
			more = h.startOne()
		}
	}
}

// startOne starts the oldest job of every lane that has room; false: none has
// both.
func (h *hand) startOne() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	started := false
	for _, l := range h.lanes {
		if l.waits() == 0 || l.running >= h.runtime.config.RunningMax {
			continue
		}
		started = true
		j := l.pop()
		l.running++
		if n := len(l.free); n > 0 {
			worker := l.free[n-1]
			l.free = l.free[:n-1]
			worker <- j // it has room for one
			l.trim(j.now)
			continue
		}
		go h.work(l, j)
	}
	return started
}

// work runs a job and then those that come, until the hand is closed.
func (h *hand) work(l *lane, j job) {
	mine := make(chan job, 1) // so that nobody waits for this goroutine to listen
	for more := true; more; {
		handlers := h.runtime.handlers(j.cmd)
		start := handlers.starter(j.cmd)
		if start != nil {
			h.begin(l, j, handlers, start)
		} else if reply, answered := h.runtime.handle(h.ctx, handlers, j.now, j.cmd); answered {
			h.send(j, reply)
		}
		j, more = h.next(l, mine, start == nil)
	}
}

// next takes the job that waits longest, or waits for one. ended says that the
// goroutine's last job is at its end too: otherwise who ends it calls left.
func (h *hand) next(l *lane, mine chan job, ended bool) (job, bool) {
	h.mu.Lock()
	if ended {
		h.out(l)
	}
	if l.waits() > 0 && l.running < h.runtime.config.RunningMax {
		defer h.mu.Unlock()
		l.running++
		return l.pop(), true
	}
	if h.closed || len(l.free) >= freeMax {
		h.mu.Unlock()
		return job{}, false
	}
	l.free = append(l.free, mine)
	h.mu.Unlock()
	j, more := <-mine
	return j, more
}

// left counts one job out and has the next started in its place.
func (h *hand) left(l *lane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out(l)
	if l.waits() > 0 && !h.closed {
		h.wakeUp()
	}
}

// out counts one job out. The hand is held.
func (h *hand) out(l *lane) {
	l.running--
	h.count--
	if h.count == 0 && h.empty != nil {
		close(h.empty)
		h.empty = nil
	}
}

// wakeUp has start look for jobs without a goroutine.
func (h *hand) wakeUp() {
	select {
	case h.wake <- struct{}{}:
	default: // a wake is pending
	}
}

// close ends the goroutines that wait, and lets the others end after their work.
// Nothing is accepted any more.
func (h *hand) close() {
	h.mu.Lock()
	h.closed = true // from here on nobody wakes start
	h.mu.Unlock()
	close(h.wake)
	<-h.started
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lanes {
		for _, worker := range l.free {
			close(worker)
		}
		l.free = nil
	}
}

func (h *hand) send(j job, reply core.Reply) {
	if err := j.respond(reply); err != nil {
		// The scheduler will hear nothing and, at complete-by, act on that.
		h.runtime.config.Log.Warn("reply not sent", "agent", j.cmd.Agent, "task", j.cmd.Task, "step", j.cmd.Step, "error", err)
	}
}

// idle gives a channel that is closed once nothing is in hand.
func (h *hand) idle() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.empty == nil {
		h.empty = make(chan struct{})
	}
	idle := h.empty
	if h.count == 0 {
		close(h.empty)
		h.empty = nil
	}
	return idle
}

func (h *hand) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// trim ends the goroutines that no command of the last spareFor has needed, which a
// burst has left behind.
func (l *lane) trim(now core.Instant) {
	l.spare = min(l.spare, len(l.free))
	if now < l.trimmed.Add(spareFor) {
		return
	}
	for _, worker := range l.free[:l.spare] {
		close(worker)
	}
	l.free = slices.Delete(l.free, 0, l.spare)
	l.spare, l.trimmed = len(l.free), now
}

// waits is how many jobs have no goroutine yet.
func (l *lane) waits() int { return len(l.waiting) - l.head }

func (l *lane) push(j job) {
	if l.head > 0 && l.head == len(l.waiting) {
		l.waiting, l.head = l.waiting[:0], 0
	}
	l.waiting = append(l.waiting, j)
}

func (l *lane) pop() job {
	j := l.waiting[l.head]
	l.waiting[l.head] = job{}
	l.head++
	if l.head*2 > len(l.waiting) {
		// Moving half of it, at most, keeps the cost per job constant and the
		// memory within twice of what waits.
		n := copy(l.waiting, l.waiting[l.head:])
		clear(l.waiting[n:])
		l.waiting, l.head = l.waiting[:n], 0
	}
	return j
}

package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Codes of replies that the runtime gives for itself; both are tried again.
const (
	codeUnknownStep = 501 // this agent does not serve that step
	codeStopping    = 503 // the agent stops before it could answer
)

// Handler does the work of one command. The context ends at its complete-by.
type Handler func(ctx context.Context, cmd *core.Command) (result []byte, err error)

// Starter begins the work of one command and returns without waiting for it. done
// is called once, from any goroutine, when the work has ended; a second call is
// ignored. The context ends at the command's complete-by, and when done is called.
//
// A command whose done is never called counts as being at work for as long as the
// runtime runs.
type Starter func(ctx context.Context, cmd *core.Command, done func(result []byte, err error))

// Handlers serve one step: Do and Undo, or Start and StartUndo.
type Handlers struct {
	Do        Handler
	Undo      Handler // nil for a check, which leaves nothing behind
	Start     Starter
	StartUndo Starter // nil for a check
	ResultMax int     // bytes; 0: core.ResultBytesMax
}

// Config is what a Runtime works with. Time is required; every other zero value
// has a default.
type Config struct {
	Time       Time
	Log        *slog.Logger  // default slog.Default()
	Ledger     Ledger        // none: the handlers are idempotent by themselves
	TriesMax   int           // tries of a handler within one command; default 3
	Backoff    time.Duration // before the second try; doubles, full jitter; default 50 ms
	BackoffCap time.Duration // default 1 s
	RunningMax int           // commands that run at a time, per agent; default 1024
	WaitingMax int           // commands that wait for those, per agent; default 4096
	DrainMax   time.Duration // how long Run finishes commands in flight; default 30 s
	// Context adds to the context of a command's work what handlers find there; nil: nothing.
	Context func(ctx context.Context, cmd *core.Command) context.Context
}

// Runtime serves the steps of one or more agents.
type Runtime struct {
	config  Config
	routes  map[route]*Handlers
	probes  map[route]Prober // see RegisterProbe; nil: none
	agents  []string         // in the order of their first step
	running atomic.Bool
}

type route struct{ agent, step string }

// New makes a runtime that serves nothing yet.
func New(config Config) *Runtime {
	config.TriesMax = cmp.Or(config.TriesMax, 3)
	config.Backoff = cmp.Or(config.Backoff, 50*time.Millisecond)
	config.BackoffCap = cmp.Or(config.BackoffCap, time.Second)
	config.RunningMax = cmp.Or(config.RunningMax, 1024)
	config.WaitingMax = cmp.Or(config.WaitingMax, 4096)
	config.DrainMax = cmp.Or(config.DrainMax, 30*time.Second)
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return &Runtime{config: config, routes: map[route]*Handlers{}}
}

// WithTime returns a runtime that serves the same steps by another clock. What is registered with one of the two later
// is not served by the other.
func (r *Runtime) WithTime(clock Time) *Runtime {
	config := r.config
	config.Time = clock
	return &Runtime{config: config, routes: maps.Clone(r.routes), agents: slices.Clone(r.agents), probes: maps.Clone(r.probes)}
}

// Register serves step on agent. It refuses names outside their alphabets, a
// step that is served already, and any step once Run has begun.
func (r *Runtime) Register(agent, step string, handlers Handlers) error {
	if err := core.CheckAgent(agent); err != nil {
		return fmt.Errorf("serve step %s: %w", step, err)
	}
	if err := core.CheckName("step", step); err != nil {
		return fmt.Errorf("serve on agent %s: %w", agent, err)
	}
	if handlers.Do != nil && handlers.Start != nil || handlers.Undo != nil && handlers.StartUndo != nil {
		return fmt.Errorf("serve step %s of agent %s: a handler that waits and one that does not", step, agent)
	}
	if handlers.Start != nil {
		handlers.Do = waiting(handlers.Start)
	}
	if handlers.StartUndo != nil {
		handlers.Undo = waiting(handlers.StartUndo)
	}
	if handlers.Do == nil {
		return fmt.Errorf("serve step %s of agent %s: no do handler", step, agent)
	}
	if r.config.Ledger != nil && handlers.Undo != nil {
		handlers.Start, handlers.StartUndo = nil, nil // a ledger waits for the work it lets through
	}
	if r.running.Load() {
		return fmt.Errorf("serve step %s of agent %s: the agent runs already", step, agent)
	}
	at := route{agent, step}
	if _, taken := r.routes[at]; taken {
		return fmt.Errorf("serve step %s of agent %s: served already", step, agent)
	}
	handlers.ResultMax = cmp.Or(handlers.ResultMax, core.ResultBytesMax)
	r.routes[at] = &handlers
	if !slices.Contains(r.agents, agent) {
		r.agents = append(r.agents, agent)
	}
	return nil
}

// Agents are the names served, in the order of their first step.
func (r *Runtime) Agents() []string { return slices.Clone(r.agents) }

// Handle works on one command and gives its reply, or answered = false when
// there must be none. now is when the command was read from its socket: the
// command's complete-by and now plus its time left both bind, the earlier wins.
// A handler that ignores its context is waited for, and not answered for.
func (r *Runtime) Handle(ctx context.Context, now core.Instant, cmd *core.Command) (reply core.Reply, answered bool) {
	return r.handle(ctx, r.handlers(cmd), now, cmd)
}

// handlers are those of a command's step; nil: it is not served.
func (r *Runtime) handlers(cmd *core.Command) *Handlers { return r.routes[route{cmd.Agent, cmd.Step}] }

func (r *Runtime) handle(ctx context.Context, handlers *Handlers, now core.Instant, cmd *core.Command) (reply core.Reply, answered bool) {
	deadline := deadlineOf(now, cmd)
	left, reply, answered := r.admit(ctx, handlers, deadline, cmd)
	if left <= 0 {
		return reply, answered
	}
	handler := handlers.Do
	if cmd.Undo {
		handler = handlers.Undo
	}
	work, cancel := r.config.Time.WithTimeout(ctx, left)
	defer cancel()
	if r.config.Context != nil {
		work = r.config.Context(work, cmd)
	}
	result, err := r.try(work, deadline, handler, handlers.Undo != nil, cmd)
	return r.reply(ctx, work, handlers, deadline, cmd, result, err)
}

// deadlineOf is the end of a command's time: replies are not read after it. now is
// when the command was read.
func deadlineOf(now core.Instant, cmd *core.Command) core.Instant {
	deadline := now.Add(cmd.Left)
	if cmd.CompleteBy != 0 {
		deadline = min(deadline, cmd.CompleteBy)
	}
	return deadline
}

// admit gives how much time a command has left; 0: it is not worked on, and reply is
// its answer if answered.
func (r *Runtime) admit(ctx context.Context, handlers *Handlers, deadline core.Instant, cmd *core.Command) (left time.Duration, reply core.Reply, answered bool) {
	left = deadline.Sub(r.config.Time.Now())
	switch {
	case left <= 0:
		return 0, core.Reply{}, false
	case ctx.Err() != nil:
		return 0, fail(cmd, &Error{Code: codeStopping, Err: errors.New("the agent stops")}), true
	case handlers == nil || cmd.Undo && handlers.Undo == nil:
		return 0, fail(cmd, &Error{Code: codeUnknownStep, Err: errors.New("this agent does not serve the step")}), true
	}
	return left, core.Reply{}, false
}

// reply turns the outcome of a command's work into its reply; answered is false when
// there is none. ctx is the parent of the work's context: it has ended when the agent
// stops.
func (r *Runtime) reply(ctx, work context.Context, handlers *Handlers, deadline core.Instant, cmd *core.Command, result []byte, err error) (reply core.Reply, answered bool) {
	if r.config.Time.Now() >= deadline || errors.Is(work.Err(), context.DeadlineExceeded) {
		return core.Reply{}, false
	}
	switch {
	case err != nil && ctx.Err() != nil && again(err):
		return fail(cmd, &Error{Code: codeStopping, Err: err}), true
	case err != nil:
		return fail(cmd, err), true
	case cmd.Undo:
		return answer(cmd), true
	}
	return succeed(cmd, handlers, result), true
}

// try calls the handler until it succeeds, fails for good, has used its tries,
// or the next try could not begin before the deadline. In the last case the failure
// is sent now, while a reply is still read. effects: the step has an undo.
func (r *Runtime) try(ctx context.Context, deadline core.Instant, handler Handler, effects bool, cmd *core.Command) ([]byte, error) {
	tries := tries{effects: effects}
	for {
		result, err := r.call(ctx, handler, effects, cmd)
		pause, err := r.judge(&tries, deadline, cmd, err)
		if pause < 0 || r.config.Time.Sleep(ctx, pause) != nil {
			return result, err
		}
	}
}

// tries are the tries of one command so far.
type tries struct {
	effects bool  // the step has an undo
	n       int   // tries that have ended
	unclear error // of the try before: it may have taken effect
}

// judge takes the error of one more try: the next begins after pause, or, if that is
// negative, outcome is the command's.
//
// A do with an undo that is refused after a try which failed otherwise is not answered
// as refused: that means "no effect", and the try before may have had one. The failure
// of that try is the answer, and leads to an undo. So it is where a try is told that another is at work: that is no answer
// to it.
func (r *Runtime) judge(t *tries, deadline core.Instant, cmd *core.Command, err error) (pause time.Duration, outcome error) {
	t.n++
	err = r.sound(cmd, err)
	outcome = err
	if t.unclear != nil && err != nil && (codeOf(err) == core.CodeTooEarly || t.effects && !cmd.Undo && core.FinalCode(codeOf(err))) {
		outcome = t.unclear
	}
	if err == nil || t.n >= r.config.TriesMax || !again(err) {
		return -1, outcome
	}
	t.unclear = outcome
	pause = r.pause(t.n)
	if r.config.Time.Now().Add(pause) >= deadline {
		return -1, outcome
	}
	return pause, outcome
}

// pause is the backoff after the nth try.
func (r *Runtime) pause(n int) time.Duration {
	return core.Backoff(r.config.Backoff, r.config.BackoffCap, n, r.config.Time.Float64())
}

// call is one try, through the ledger where there is one and the step leaves
// something behind.
func (r *Runtime) call(ctx context.Context, handler Handler, effects bool, cmd *core.Command) (result []byte, err error) {
	defer func() { r.panicked(cmd, recover(), &err) }() // a ledger may panic too
	ledger := r.config.Ledger
	switch {
	case ledger == nil || !effects:
		return handler(ctx, cmd)
	case cmd.Undo:
		return nil, ledger.Undo(ctx, cmd.Key(), func(ctx context.Context, result []byte, known bool) (err error) {
			defer func() { r.panicked(cmd, recover(), &err) }()
			if known && cmd.Result == nil {
				// The do answered too late for the scheduler, not for us.
				remembered := *cmd
				if remembered.Result = result; len(result) == 0 {
					remembered.Result = []byte("null")
				}
				_, err = handler(ctx, &remembered)
				return err
			}
			_, err = handler(ctx, cmd)
			return err
		})
	}
	return ledger.Do(ctx, cmd.Key(), func(ctx context.Context) (result []byte, err error) {
		// Here already, so that no ledger has to think of panics.
		defer func() { r.panicked(cmd, recover(), &err) }()
		return handler(ctx, cmd)
	})
}

// sound is an error of a handler that can be asked for its code and its text. One that panics then, as that of a nil pointer
// may, is a panic of its handler.
func (r *Runtime) sound(cmd *core.Command, err error) (is error) {
	if err == nil {
		return nil
	}
	is = err
	defer func() { r.panicked(cmd, recover(), &is) }()
	_, _ = codeOf(err), textOf(err)
	return is
}

// panicked turns a recovered panic into an error, and logs it with its stack.
func (r *Runtime) panicked(cmd *core.Command, value any, err *error) {
	if value == nil {
		return
	}
	failure := &panicError{value: value, stack: debug.Stack()}
	r.config.Log.Error("handler panicked", "agent", cmd.Agent, "task", cmd.Task, "step", cmd.Step,
		"undo", cmd.Undo, "attempt", cmd.Attempt, "panic", failure.Error(), "stack", string(failure.stack))
	*err = failure
}

// answer is the reply to a command that succeeded, without a result.
func answer(cmd *core.Command) core.Reply {
	return core.Reply{Partition: cmd.Partition, Number: cmd.Number, Seq: cmd.Seq}
}

func succeed(cmd *core.Command, handlers *Handlers, result []byte) core.Reply {
	if len(result) > handlers.ResultMax {
		return fail(cmd, Fail(fmt.Errorf("result has %d bytes, result_max is %d", len(result), handlers.ResultMax)))
	}
	if len(result) > 0 {
		if err := quickjson.Check("result", result); err != nil {
			return fail(cmd, Fail(err))
		}
	}
	reply := answer(cmd)
	reply.Result = result
	return reply
}

func fail(cmd *core.Command, err error) core.Reply {
	reply := answer(cmd)
	reply.Code, reply.Error = codeOf(err), textOf(err)
	return reply
}

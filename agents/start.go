package agents

import (
	"context"
	"sync/atomic"

	"duly.dev/duly/internal/core"
)

// waiting makes a Handler of a Starter.
func waiting(start Starter) Handler {
	type outcome struct {
		result []byte
		err    error
	}
	return func(ctx context.Context, cmd *core.Command) ([]byte, error) {
		done := make(chan outcome, 1)
		start(ctx, cmd, func(result []byte, err error) {
			select {
			case done <- outcome{result, err}:
			default: // called twice
			}
		})
		o := <-done
		return o.result, o.err
	}
}

// started is a command whose work goes on after its Starter has returned.
type started struct {
	dispatcher *dispatcher
	queue      *queue
	job        job
	handlers   *Handlers
	start      Starter
	deadline   core.Instant
	ctx        context.Context // of the work
	cancel     context.CancelFunc
	tries      tries
	open       atomic.Int32 // the number of the try that may be done; 0: none
}

// starter is what begins the work of a command; nil: its handler waits for the work.
func (h *Handlers) starter(cmd *core.Command) Starter {
	switch {
	case h == nil:
		return nil
	case cmd.Undo:
		return h.StartUndo
	}
	return h.Start
}

// begin starts the work of a job. It ends when the work is done, which may be before
// begin returns.
func (d *dispatcher) begin(q *queue, j job, handlers *Handlers, start Starter) {
	r := d.runtime
	s := &started{dispatcher: d, queue: q, job: j, handlers: handlers, start: start, deadline: deadlineOf(j.now, j.cmd)}
	left, reply, answered := r.admit(d.ctx, handlers, s.deadline, j.cmd)
	if left <= 0 {
		s.end(reply, answered)
		return
	}
	s.ctx, s.cancel = r.config.Time.WithTimeout(d.ctx, left)
	if r.config.Context != nil {
		s.ctx = r.config.Context(s.ctx, j.cmd)
	}
	s.tries.effects = handlers.Undo != nil
	s.try()
}

// try calls the Starter once. Its first call of done counts; a later one, also after
// the next try has begun, is ignored.
func (s *started) try() {
	n := int32(s.tries.n + 1)
	s.open.Store(n)
	done := func(result []byte, err error) {
		if s.open.CompareAndSwap(n, 0) {
			s.done(result, err)
		}
	}
	defer func() {
		var err error
		s.dispatcher.runtime.panicked(s.job.cmd, recover(), &err)
		if err != nil {
			done(nil, err)
		}
	}()
	s.start(s.ctx, s.job.cmd, done)
}

// done takes the outcome of one try: it begins the next, or finishes the command.
func (s *started) done(result []byte, err error) {
	r := s.dispatcher.runtime
	pause, err := r.judge(&s.tries, s.deadline, s.job.cmd, err)
	if pause < 0 {
		s.finish(result, err)
		return
	}
	// The command is in flight until finish, so the drain waits for this goroutine.
	go func() {
		if r.config.Time.Sleep(s.ctx, pause) == nil {
			s.try()
			return
		}
		s.finish(nil, err)
	}()
}

func (s *started) finish(result []byte, err error) {
	reply, answered := s.dispatcher.runtime.reply(s.dispatcher.ctx, s.ctx, s.handlers, s.deadline, s.job.cmd, result, err)
	s.cancel()
	s.end(reply, answered)
}

// end sends the reply, if there is one, and counts the command out.
func (s *started) end(reply core.Reply, answered bool) {
	if answered {
		s.dispatcher.send(s.job, reply)
	}
	d := s.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out(s.queue)
	d.wake(s.queue)
}

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
	hand     *hand
	lane     *lane
	job      job
	handlers *Handlers
	start    Starter
	deadline core.Instant
	ctx      context.Context // of the work
	cancel   context.CancelFunc
	tries    tries
	open     atomic.Int32 // the number of the try that may be done; 0: none
}

// starter is what begins the work of a command; nil: nothing does without waiting for it.
func (h *Handlers) starter(cmd *core.Command) Starter {
	switch {
	case h == nil:
		return nil
	case cmd.Undo:
		return h.StartUndo
	}
	return h.Start
}

// begin starts the work of a job. It is counted out when it is done, perhaps before
// begin returns.
func (h *hand) begin(l *lane, j job, handlers *Handlers, start Starter) {
	r := h.runtime
	s := &started{hand: h, lane: l, job: j, handlers: handlers, start: start, deadline: deadlineOf(j.now, j.cmd)}
	left, reply, answered := r.admit(h.ctx, handlers, s.deadline, j.cmd)
	if left <= 0 {
		s.end(reply, answered)
		return
	}
	s.ctx, s.cancel = r.config.Time.WithTimeout(h.ctx, left)
	s.tries.effects = handlers.Undo != nil
	s.try()
}

// try calls the Starter once. What it says after its done has been called, or that
// of a later try, is ignored.
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
		s.hand.runtime.panicked(s.job.cmd, recover(), &err)
		if err != nil {
			done(nil, err)
		}
	}()
	s.start(s.ctx, s.job.cmd, done)
}

// done takes what came of one try.
func (s *started) done(result []byte, err error) {
	r := s.hand.runtime
	pause, err := r.judge(&s.tries, s.deadline, s.job.cmd, err)
	if pause >= 0 {
		// The hand counts this job until its end, and so waits for the goroutine.
		go func() {
			if r.config.Time.Sleep(s.ctx, pause) == nil {
				s.try()
				return
			}
			s.settle(nil, err)
		}()
		return
	}
	s.settle(result, err)
}

func (s *started) settle(result []byte, err error) {
	reply, answered := s.hand.runtime.settle(s.hand.ctx, s.ctx, s.handlers, s.deadline, s.job.cmd, result, err)
	s.cancel()
	s.end(reply, answered)
}

// end sends the reply, if there is one, and gives the job's place to the next.
func (s *started) end(reply core.Reply, answered bool) {
	if answered {
		s.hand.send(s.job, reply)
	}
	s.hand.left(s.lane)
}

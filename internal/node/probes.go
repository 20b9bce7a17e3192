package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/scheduler"
)

const (
	probesAtOnce  = 256             // questions that wait for answers of one agent at a time
	probeAnswer   = 5 * time.Second // the longest that one of them waits
	probeAgain    = 100 * time.Millisecond
	probeAgainMax = 2 * time.Second
)

// probes asks agents what became of dos that were not answered. There are at most as many questions as tasks in flight.
type probes struct {
	now  func() core.Instant
	ask  func(ctx context.Context, cmd *core.Command, resultMax int) (core.Probe, error)
	log  *slog.Logger
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu sync.Mutex
	// rooms have an element for each question that waits for an answer, by agent: one that is silent keeps none from another.
	rooms map[string]chan struct{}
}

func newProbes(now func() core.Instant, ask func(context.Context, *core.Command, int) (core.Probe, error), log *slog.Logger) *probes {
	p := &probes{now: now, ask: ask, log: log, rooms: map[string]chan struct{}{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// close ends all questions and waits for that.
func (p *probes) close() {
	p.stop()
	p.wg.Wait()
}

// begin asks until the agent says what became of the do, or the time is over.
func (p *probes) begin(q scheduler.Question, said func(core.Probe)) {
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, q.Command.Left)
		defer cancel()
		for n := 1; ; n++ {
			asked := p.now()
			is, err := p.once(ctx, &q)
			if err == nil && is.Decides(asked, q.Quiet) {
				said(is)
				return
			}
			if err != nil {
				p.log.Debug("an agent does not say what became of a call", "agent", q.Command.Agent, "key", q.Command.Key(), "error", err)
			}
			if pause.For(ctx, core.Backoff(probeAgain, probeAgainMax, n, 1)) != nil {
				return
			}
		}
	})
}

// room is that of an agent.
func (p *probes) room(agent string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rooms[agent] == nil {
		p.rooms[agent] = make(chan struct{}, probesAtOnce)
	}
	return p.rooms[agent]
}

// once asks once. The agent is told until when this answer is read.
func (p *probes) once(ctx context.Context, q *scheduler.Question) (core.Probe, error) {
	room := p.room(q.Command.Agent)
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	case <-ctx.Done():
		return core.Probe{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, probeAnswer)
	defer cancel()
	cmd := q.Command
	if until, ok := ctx.Deadline(); ok {
		cmd.Left = time.Until(until)
		cmd.CompleteBy = min(cmd.CompleteBy, core.InstantOf(until))
	}
	return p.ask(ctx, &cmd, q.ResultMax)
}

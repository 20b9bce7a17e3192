package main

import (
	"context"
	"sync"
	"time"
)

// idleSettle lets work that the start has left behind come to an end.
const idleSettle = 5 * time.Second

// idle measures what the system costs without any load.
func idle(ctx context.Context, s *settings) (*Result, error) {
	r, err := newRig(ctx, s.system(rigOptions{Scale: 1}))
	if err != nil {
		return nil, err
	}
	res, err := r.measureIdle(ctx, time.Duration(orElse(s.seconds, 60))*time.Second)
	if closed := r.close(); err == nil {
		err = closed
	}
	return res, err
}

func (r *rig) measureIdle(ctx context.Context, d time.Duration) (*Result, error) {
	if !pause(ctx, idleSettle) {
		return nil, ctx.Err()
	}
	before, err := r.counters(ctx)
	if err != nil {
		return nil, err
	}
	watch := &sampler{engine: r.engine.pid(), agents: r.agents.pid(), database: r.pid}
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { watch.run(watching) })
	from := time.Now()
	complete := pause(ctx, d)
	to := time.Now()
	stop()
	wg.Wait()
	if !complete {
		return nil, ctx.Err()
	}
	after, err := r.counters(ctx)
	if err != nil {
		return nil, err
	}
	seconds := to.Sub(from).Seconds()
	used := watch.between(from.UnixNano(), to.UnixNano())
	return &Result{Seconds: seconds, PSSMax: watch.pss, Cores: used.total() / seconds, Idle: &Idle{
		Seconds: seconds, EngineCPUPercent: 100 * used.engine / seconds, AgentsCPUPercent: 100 * used.agents / seconds,
		DatabaseCPUPercent: 100 * used.database / seconds, StatementsPerMinute: float64(after.statements-before.statements) / seconds * 60,
	}}, nil
}

// pause waits; false: ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// Sizes of the growth scenario.
const (
	growthMost    = 1_000_000
	growthRate    = 200 // submissions a second beside what is parked
	growthSeconds = 5
	scansTimed    = 21
	expiredTasks  = 100_000
	expiredMax    = 5 * time.Minute
)

// parkedFor is how long tasks stay parked: longer than any run.
const parkedFor = 24 * time.Hour

// growth measures a submission, a scan and a takeover beside 1K, 10K, 100K and
// 1M parked tasks, and then lets 100,000 expire at the same moment.
func growth(ctx context.Context, s *settings) (*Result, error) {
	most := orElse(s.preload, growthMost)
	res := &Result{}
	for n := 1000; n <= most; n *= 10 {
		if err := within1(ctx, s, n, parkedFor, res, besides); err != nil {
			return nil, fmt.Errorf("%d parked: %w", n, err)
		}
	}
	n := min(expiredTasks, most)
	// Far enough away to be inserted and taken over before.
	after := time.Duration(n/4000)*time.Second + 15*time.Second
	if err := within1(ctx, s, n, after, res, expire); err != nil {
		return nil, fmt.Errorf("%d expired at once: %w", n, err)
	}
	return res, nil
}

// within1 runs one size on a system of its own. Its tasks are due so long after the
// database is there and the first of them is parked.
func within1(ctx context.Context, s *settings, n int, after time.Duration, res *Result, body func(context.Context, *rig, schema.Store, int, core.Instant, *Result) error) error {
	var due core.Instant
	o := s.system(rigOptions{Prepare: func(ctx context.Context, r *rig) error {
		due = core.InstantOf(time.Now().Add(after))
		return r.park(ctx, n, due)
	}})
	r, err := newRig(ctx, o)
	if err != nil {
		return err
	}
	store, err := dialects.Open(ctx, r.database, schema.Options{MaxConns: 2})
	if err == nil {
		err = errors.Join(body(ctx, r, store, n, due, res), store.Close())
	}
	return errors.Join(err, r.close())
}

// besides measures what things cost while n tasks are parked.
func besides(ctx context.Context, r *rig, store schema.Store, n int, _ core.Instant, res *Result) error {
	g := Growth{Parked: n}
	var answer engineAnswer
	if err := r.engine.ask(engineRequest{Restart: true}, &answer); err != nil {
		return err
	}
	g.TakeoverMS = answer.TakeoverMS
	load, err := r.load(ctx, []segment{{Rate: growthRate, For: growthSeconds * time.Second}})
	if err != nil {
		return err
	}
	g.Submit, g.EndToEnd, g.EnginePSS = load.Submit, load.EndToEnd, load.PSSMax.Engine
	if g.ScanMS, err = scan(ctx, store); err != nil {
		return err
	}
	if err := r.closeBooks(load); err != nil {
		return err
	}
	add(res, load)
	res.Growth = append(res.Growth, g)
	fmt.Fprintf(os.Stderr, "growth: %7d parked: takeover %.0f ms, scan %.2f ms, submit p50 %.1f p99 %.1f ms, engine %.0f MiB\n", n, g.TakeoverMS, g.ScanMS, g.Submit.P50, g.Submit.P99, g.EnginePSS)
	return nil
}

// add counts one load's books in with the others.
func add(res, load *Result) {
	res.Seconds += load.Seconds
	res.OfferedPerS = load.OfferedPerS
	res.Offered += load.Offered
	res.Accepted += load.Accepted
	res.Refused += load.Refused
	res.TimedOut += load.TimedOut
	res.Processed += load.Processed
	res.Late += load.Late
	res.Undone += load.Undone
	res.Expired += load.Expired
	res.Error += load.Error
	res.Lost += load.Lost
	res.Doubled += load.Doubled
	res.HalfDone += load.HalfDone
	res.Submit, res.EndToEnd, res.Overhead = load.Submit, load.EndToEnd, load.Overhead // of the largest
	res.PSSMax.Engine, res.PSSMax.Database = max(res.PSSMax.Engine, load.PSSMax.Engine), max(res.PSSMax.Database, load.PSSMax.Database)
	res.TasksPerS, res.StepsPerS = load.TasksPerS, load.StepsPerS
	res.Cores, res.CPUPerTask, res.WALPerTask = load.Cores, load.CPUPerTask, load.WALPerTask
}

// scan is the median of the supervisor's look, in milliseconds, asked from
// outside.
func scan(ctx context.Context, store schema.Store) (float64, error) {
	var took []float64
	for range scansTimed {
		began := time.Now()
		if _, err := store.Overdue(ctx, 0, core.InstantOf(began), core.Due{}, 1000); err != nil {
			return 0, err
		}
		took = append(took, ms(time.Since(began)))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// expire waits until none of the tasks that expired together is overdue any
// more: each was asked after, found overdue and begun again, with all that this
// leads to.
func expire(ctx context.Context, _ *rig, store schema.Store, n int, due core.Instant, res *Result) error {
	if time.Now().After(due.Time()) {
		return fmt.Errorf("the tasks expired before they were all there, %v ago", time.Since(due.Time()).Round(time.Second))
	}
	if !pause(ctx, time.Until(due.Time())) {
		return ctx.Err()
	}
	for {
		waiting, err := store.Overdue(ctx, 0, core.InstantOf(time.Now()), core.Due{}, 1)
		if err != nil {
			return err
		}
		took := time.Since(due.Time())
		if len(waiting) == 0 && took > time.Second {
			fmt.Fprintf(os.Stderr, "growth: %d expired at once: none overdue after %v\n", n, took.Round(time.Millisecond))
			last := &res.Growth[len(res.Growth)-1]
			last.ExpiredMS, last.Expired = float64(took.Milliseconds()), n
			return nil
		}
		if took > expiredMax {
			return fmt.Errorf("some are still overdue after %v", expiredMax)
		}
		if !pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
)

const (
	stepMax     = 30 * time.Second // of one step of an operation
	expireEvery = time.Minute      // expired previews are forgotten so often
	stoppedMax  = 100              // operations that were stopped last, whose outcomes are still read
	easeFrom    = 10               // after an overload rates begin at this part of them
	easeEvery   = time.Second      // and double so often
)

// Runner runs operations while this process leads. It is not safe for concurrent use.
type Runner struct {
	cfg      Config
	store    Store
	controls Controls
	desk     *operate.Desk
	leader   Leader
	load     Load // may be nil
	report   func(error)
	log      *slog.Logger

	runs    map[string]*run
	turn    int // which operation is stepped first: each has its turn
	findAt  time.Time
	dropAt  time.Time
	pace    *rate.Limiter // of all operations without a rate of their own
	eased   float64       // part of each rate that an overload has left; 1: all of it
	easedAt time.Time     // when that was last changed
}

// NewRunner makes a runner, which does nothing until Run. report takes the outcome of what is tried again and again,
// nil when it works; it must not block.
func NewRunner(cfg Config, store Store, controls Controls, desk *operate.Desk, leader Leader, load Load, report func(error), log *slog.Logger) *Runner {
	cfg = cfg.WithDefaults()
	return &Runner{
		cfg: cfg, store: store, controls: controls, desk: desk, leader: leader, load: load, report: report, log: log,
		runs: map[string]*run{}, pace: rate.NewLimiter(rate.Limit(cfg.Pace), burst(cfg.Pace)), eased: 1,
	}
}

// burst is how many tasks may be asked at once at a rate: those of a quarter of a second, and one at least.
func burst(perSecond int) int { return max(1, perSecond/4) }

// Run runs operations until ctx ends, and returns nil: what fails is reported, and done again in the next round.
func (r *Runner) Run(ctx context.Context) error {
	for {
		wait := r.round(ctx)
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}

// round steps each operation once, and says when the next round is.
func (r *Runner) round(ctx context.Context) time.Duration {
	if !r.leader.Leads() {
		clear(r.runs)
		r.findAt = time.Time{}
		r.report(nil) // another does it now: what failed here would be told for ever
		return r.cfg.Interval
	}
	var failed error
	now := time.Now()
	if !now.Before(r.findAt) {
		r.findAt = now.Add(r.cfg.Interval)
		failed = r.find(ctx, now)
	}
	r.ease(now)
	ids := slices.Sorted(maps.Keys(r.runs))
	r.turn++
	for i := range ids {
		id := ids[(i+r.turn)%len(ids)]
		failed = errors.Join(failed, r.step(ctx, id))
	}
	if ctx.Err() != nil {
		return 0 // what failed now failed because of the end
	}
	r.report(failed)
	if len(r.runs) > 0 {
		return r.cfg.Beat
	}
	return max(0, time.Until(r.findAt))
}

// step steps one operation, and forgets it when that failed: what the state store has is read again.
func (r *Runner) step(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	u := r.runs[id]
	over, err := u.step(ctx)
	if over || err != nil {
		delete(r.runs, id)
	}
	if errors.Is(err, operate.ErrFenced) {
		r.log.Info("an operation was changed by another, and is read again", "operation", id)
		return nil
	}
	if err != nil {
		return fmt.Errorf("operation %s: %w", id, err)
	}
	if u.sendErr != nil {
		return fmt.Errorf("operation %s: %w", id, u.sendErr)
	}
	return nil
}

// find takes up what runs and is not in memory as it is stored, and what was stopped while requests were out.
func (r *Runner) find(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	ops, _, err := r.store.Operations(ctx, active, operate.ListMax, "")
	if err != nil {
		return fmt.Errorf("operations that run: %w", err)
	}
	stopped, _, err := r.store.Operations(ctx, []operate.OperationState{operate.OperationStopped}, stoppedMax, "")
	if err != nil {
		return fmt.Errorf("operations that were stopped: %w", err)
	}
	var failed error
	known := r.runs
	r.runs = make(map[string]*run, len(known)) // what is not found was ended by another
	for _, op := range append(ops, stopped...) {
		if u := known[op.ID]; u != nil && u.op.Epoch == op.Epoch {
			r.runs[op.ID] = u
			continue
		}
		if op.State != operate.OperationRunning && op.Tally.Asked == 0 {
			continue
		}
		u, err := r.takeUp(ctx, op)
		switch {
		case errors.Is(err, operate.ErrFenced): // the next look finds what it is by then
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("take up operation %s: %w", op.ID, err))
		default:
			r.runs[op.ID] = u
		}
	}
	if !now.Before(r.dropAt) {
		r.dropAt = now.Add(expireEvery)
		if _, err := r.store.DropExpired(ctx, r.cfg.Now()); err != nil {
			failed = errors.Join(failed, fmt.Errorf("forget expired previews: %w", err))
		}
	}
	return failed
}

// ease lowers all rates after an overload, and raises them again step by step.
func (r *Runner) ease(now time.Time) {
	switch {
	case r.overloaded():
		r.eased, r.easedAt = 1./easeFrom, now
	case r.eased < 1 && now.Sub(r.easedAt) >= easeEvery:
		r.eased, r.easedAt = min(1, r.eased*2), now
	}
	r.limit(r.pace, r.cfg.Pace, now)
}

// limit sets a limiter to so many tasks a second, or to the part of them that an overload has left.
func (r *Runner) limit(l *rate.Limiter, perSecond int, now time.Time) {
	if want := rate.Limit(float64(perSecond) * r.eased); want != l.Limit() {
		l.SetLimitAt(now, want)
	}
}

func (r *Runner) overloaded() bool { return r.load != nil && r.load.Overloaded() }

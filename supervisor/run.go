package supervisor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// The defaults of RunConfig.
const (
	defaultInterval = time.Second
	defaultTickMax  = 5 * time.Second

	resignMax = 2 * time.Second
	// readWell is how long reading must go on for the last failure of it to be over.
	readWell = 5 * time.Second

	// hurry is how much sooner the next tick comes when there was more than one
	// may ask. The partitions hold it back: none is asked again before it has read
	// the last request.
	hurry = 20
)

// RunConfig is what the shell needs. Zero fields take their defaults, but Now is
// required.
type RunConfig struct {
	Interval time.Duration // from the end of one tick to the next
	TickMax  time.Duration // how long one tick may take; a leader that hangs longer is no use
	Now      func() core.Instant
	// Report takes the outcome of what is tried again and again, nil when it works: these are not logged here. It must
	// not block. nil: none of it is told.
	Report func(what Trouble, err error)
}

// Trouble names what a supervisor tries again and again.
type Trouble string

// The troubles.
const (
	TroubleTick   Trouble = "supervision" // finding what is overdue and asking about it
	TroubleAlerts Trouble = "task-alerts" // reading what ended in error and raising alerts about it
)

func (r *Runner) report(what Trouble, err error) {
	if r.cfg.Report != nil {
		r.cfg.Report(what, err)
	}
}

// Runner is the role: it ticks, and reads what ended in error.
type Runner struct {
	cfg     RunConfig
	sup     *Supervisor
	alerts  Alerts   // may be nil
	alerter *Alerter // may be nil
	log     *slog.Logger

	led bool
	rep Report
	mu  sync.Mutex // of rep and what follows
	// Tasks that were asked about since the beginning.
	asked int64
	// What keeps alerts from being raised: the sink, and the stream of what ended in error.
	sinkErr, readErr error
}

// NewRunner makes the shell around a supervisor, which belongs to it from now
// on. Without alerts or alerter (nil) tasks in error raise no alert. It does
// nothing until Run.
func NewRunner(cfg RunConfig, sup *Supervisor, alerts Alerts, alerter *Alerter, log *slog.Logger) *Runner {
	cfg.Interval = cmp.Or(cfg.Interval, defaultInterval)
	cfg.TickMax = cmp.Or(cfg.TickMax, defaultTickMax)
	return &Runner{cfg: cfg, sup: sup, alerts: alerts, alerter: alerter, log: log}
}

// Last returns the report of the newest tick. It is safe for concurrent use.
func (r *Runner) Last() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rep
}

// Asked is how many overdue tasks have been asked about. It is safe for concurrent use.
func (r *Runner) Asked() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// Run supervises until ctx ends; then it gives the leadership up. It returns
// nil: what fails in a tick is reported, and done again in the next.
func (r *Runner) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	if r.alerts != nil && r.alerter != nil {
		reading.Go(func() { r.read(ctx) })
	}
	for ctx.Err() == nil {
		r.tick(ctx)
		between := r.cfg.Interval
		if r.rep.Full && r.rep.Messages > 0 {
			between /= hurry
		}
		if pause.For(ctx, between) != nil {
			break
		}
	}
	reading.Wait()
	r.finish(ctx)
	return nil
}

func (r *Runner) tick(ctx context.Context) {
	tickCtx, cancel := context.WithTimeout(ctx, r.cfg.TickMax)
	defer cancel()
	rep, err := r.sup.Tick(tickCtx, r.cfg.Now())
	if rep.Held != r.led {
		r.led = rep.Held
		r.log.Info("supervisor", "leads", r.led)
	}
	r.mu.Lock()
	r.rep = rep
	r.asked += int64(rep.Asked)
	r.mu.Unlock()
	if ctx.Err() != nil {
		return // what failed now failed because of the end
	}
	r.report(TroubleTick, err)
	if r.alerter != nil {
		r.alerting(&r.sinkErr, r.alerter.Flush(r.cfg.Now()))
	}
}

// alerting notes the outcome of one part of alerting, and reports all of it.
func (r *Runner) alerting(part *error, err error) {
	r.mu.Lock()
	*part = err
	all := errors.Join(r.sinkErr, r.readErr)
	r.mu.Unlock()
	r.report(TroubleAlerts, all)
}

// finish says what has been held back and gives the lease up, in a time of its
// own because ctx has ended.
func (r *Runner) finish(ctx context.Context) {
	if r.alerter != nil {
		if err := r.alerter.Finish(); err != nil {
			r.log.Error("alerts could not be raised", "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignMax)
	defer cancel()
	if err := r.sup.Resign(ctx); err != nil {
		r.log.Warn("the lease runs out by itself", "error", err)
	}
}

// read hands endings to the alerter, and begins again when reading fails.
func (r *Runner) read(ctx context.Context) {
	take := func(e core.Ending, done func(error)) { r.alerter.Take(r.cfg.Now(), e, done) }
	for ctx.Err() == nil {
		well := time.AfterFunc(readWell, func() { r.alerting(&r.readErr, nil) })
		err := r.alerts.Errors(ctx, take)
		well.Stop()
		if ctx.Err() != nil {
			return
		}
		r.alerting(&r.readErr, err)
		if pause.For(ctx, r.cfg.Interval) != nil {
			return
		}
	}
}

package supervisor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// The defaults of RunConfig.
const (
	DefaultInterval = time.Second
	DefaultTickMax  = 5 * time.Second

	resignMax    = 2 * time.Second
	complainPast = 30 * time.Second // the same complaint again after so long

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
}

// Runner is the role: it ticks, and reads what ended in error.
type Runner struct {
	cfg     RunConfig
	sup     *Supervisor
	alerts  Alerts   // may be nil
	alerter *Alerter // may be nil
	log     *slog.Logger

	led      bool
	rep      Report
	mu       sync.Mutex // of rep
	tickLog  complainer
	alertLog complainer
}

// NewRunner makes the shell around a supervisor, which belongs to it from now
// on. Without alerts or alerter (nil) nobody is told about tasks in error. It
// does nothing until Run.
func NewRunner(cfg RunConfig, sup *Supervisor, alerts Alerts, alerter *Alerter, log *slog.Logger) *Runner {
	orInt(&cfg.Interval, DefaultInterval)
	orInt(&cfg.TickMax, DefaultTickMax)
	r := &Runner{cfg: cfg, sup: sup, alerts: alerts, alerter: alerter, log: log}
	r.tickLog = complainer{log: log, text: "the supervisor could not do its work"}
	r.alertLog = complainer{log: log, text: "alerts could not be raised"}
	return r
}

// Last returns the report of the newest tick. It is safe for concurrent use.
func (r *Runner) Last() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rep
}

// Run supervises until ctx ends; then it gives the leadership up. It returns
// nil: what fails in a tick is logged, and done again in the next.
func (r *Runner) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	if r.alerts != nil && r.alerter != nil {
		reading.Go(func() { r.read(ctx) })
	}
	timer := time.NewTimer(r.cfg.Interval)
	defer timer.Stop()
	for ctx.Err() == nil {
		r.tick(ctx)
		pause := r.cfg.Interval
		if r.rep.Full && r.rep.Messages > 0 {
			pause /= hurry
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
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
	r.mu.Unlock()
	if ctx.Err() != nil {
		return // what failed now failed because of the end
	}
	r.tickLog.complain(r.cfg.Now(), err)
	if r.alerter != nil {
		r.alertLog.complain(r.cfg.Now(), r.alerter.Flush(r.cfg.Now()))
	}
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
	take := func(e core.Ending) error { return r.alerter.Take(r.cfg.Now(), e) }
	reading := complainer{log: r.log, text: "endings in error could not be read"}
	for ctx.Err() == nil {
		err := r.alerts.Errors(ctx, take)
		if ctx.Err() != nil {
			return
		}
		reading.complain(r.cfg.Now(), err)
		timer := time.NewTimer(r.cfg.Interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// complainer logs an error when it changes, and again after a while: a database
// that is away for an hour should not fill the log each second.
type complainer struct {
	log  *slog.Logger
	text string
	last string
	at   core.Instant
}

func (c *complainer) complain(now core.Instant, err error) {
	if err == nil {
		if c.last != "" {
			c.log.Info("it works again", "what", c.text)
		}
		c.last = ""
		return
	}
	if text := err.Error(); text != c.last || now >= c.at.Add(complainPast) {
		c.log.Warn(c.text, "error", err)
		c.last, c.at = text, now
	}
}

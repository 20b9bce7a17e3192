package node

import (
	"context"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/redact"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/scheduler"
)

const (
	surveyEvery = 5 * time.Second  // how often what costs a request is looked at, while someone scrapes
	surveyFor   = time.Minute      // after the last scrape
	surveyKept  = 5 * time.Minute  // how long what a look found is shown: no one scraped, and none followed
	surveyMax   = 30 * time.Second // of one look: a large store on a slow machine needs long
	surveyMost  = 64               // operations that are counted
)

// survey is what a scrape shows and cannot read from memory.
type survey struct {
	scraped    atomic.Int64 // when, by Unix time in seconds
	lag        atomic.Pointer[map[int]int64]
	operations atomic.Pointer[[]operate.Operation]
	forecast   atomic.Pointer[operate.Forecast]
	counts     atomic.Pointer[[]core.Count]
	looks      int          // so far
	looked     atomic.Int64 // when the last one ended, as scraped
}

// forecastLooks is how many looks there are to one at the forecast, which reads a sample of the tasks.
const forecastLooks = 6

// lookAhead keeps what is expected of the unfinished tasks.
func (s *survey) lookAhead(ctx context.Context, n *Node) {
	if s.looks++; s.looks%forecastLooks != 1 {
		return
	}
	counts, err := n.store.CountsUpTo(ctx, operate.CountExactMax)
	keep(&s.counts, &counts, err)
	f, err := n.Forecast(ctx)
	keep(&s.forecast, &f, err)
}

// keep takes what was found; what could not be read is not shown.
func keep[T any](at *atomic.Pointer[T], found *T, err error) {
	if err != nil {
		found = nil
	}
	at.Store(found)
}

// run looks from time to time until ctx ends, while someone scrapes.
func (s *survey) run(ctx context.Context, n *Node) {
	for pause.For(ctx, surveyEvery) == nil {
		if time.Since(time.Unix(s.scraped.Load(), 0)) > surveyFor {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, surveyMax)
		s.look(bounded, n)
		cancel()
		s.looked.Store(time.Now().Unix())
	}
}

// young reports whether what the last look found is shown yet.
func (s *survey) young() bool { return time.Since(time.Unix(s.looked.Load(), 0)) < surveyKept }

func (s *survey) look(ctx context.Context, n *Node) {
	if n.owning() != nil {
		lag, _ := n.conn.Backlog(ctx) // what is not known is not shown
		s.lag.Store(&lag)
	}
	if !n.leads() {
		s.operations.Store(nil)
		s.forecast.Store(nil)
		s.counts.Store(nil)
		return
	}
	s.lookAhead(ctx, n)
	ops, _, err := n.store.Operations(ctx, underWay, surveyMost, "")
	keep(&s.operations, &ops, err)
}

// underWay are the states of operations that are not over.
var underWay = []operate.OperationState{operate.OperationRunning, operate.OperationPaused, operate.OperationBraked}

// Metrics tells what the last looks found.
func (s *survey) Metrics(to *telemetry.Scrape) {
	if counts := s.counts.Load(); counts != nil {
		for _, c := range *counts {
			if c.State == core.StateError {
				to.Count("duly_tasks_in_error", c.Tasks, c.Type)
			}
		}
	}
	if f := s.forecast.Load(); f != nil {
		for i := range f.Plans {
			if p := &f.Plans[i]; p.Chance != nil {
				to.Put("duly_forecast_chance", *p.Chance, p.Type, strconv.FormatInt(p.Version, 10))
			}
		}
	}
	ops := s.operations.Load()
	if ops == nil {
		return
	}
	for _, state := range underWay {
		to.Count("duly_operations", 0, string(state))
	}
	for i := range *ops {
		op := &(*ops)[i]
		to.Count("duly_operations", 1, string(op.State))
		for outcome, n := range map[operate.Outcome]int64{operate.OutcomeWaiting: op.Tally.Waiting, operate.OutcomeAsked: op.Tally.Asked, operate.OutcomeDone: op.Tally.Done,
			operate.OutcomeFailedAgain: op.Tally.FailedAgain, operate.OutcomeSkipped: op.Tally.Skipped} {
			to.Count("duly_operation_tasks", n, string(outcome))
		}
	}
}

// metrics serves the node's metrics.
func (n *Node) metrics() http.Handler {
	version := n.cfg.Version
	if version == "" {
		if info, ok := debug.ReadBuildInfo(); ok {
			version = info.Main.Version
		}
	}
	next := telemetry.Handler(n, telemetry.Build{Version: version, Node: n.cfg.NodeName, Roles: n.cfg.Roles})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.survey.scraped.Store(time.Now().Unix())
		next.ServeHTTP(w, r)
	})
}

// openTraces makes the tracer, if there is a collector.
func (n *Node) openTraces(ctx context.Context, secrets redact.Secrets) error {
	if n.cfg.OTLPEndpoint == "" {
		return nil
	}
	exporter, err := telemetry.OTLP(ctx, n.cfg.OTLPEndpoint)
	if err != nil {
		return err
	}
	n.trace(exporter, secrets)
	return nil
}

// trace makes the tracer.
func (n *Node) trace(exporter telemetry.Exporter, secrets redact.Secrets) {
	n.tracer = telemetry.NewTracer(exporter, telemetry.TracerOptions{Node: n.cfg.NodeName, Namespace: n.cfg.Namespace, Hide: secrets.Text,
		Report: func(err error) { n.report(condTraces, err) }})
}

// condTraces is the condition that the collector takes spans.
const condTraces = "traces"

// traces is the tracer as scheduler.Observer.
type traces struct{ *telemetry.Tracer }

// Name implements scheduler.Observer.
func (t traces) Name() string { return "traces" }

// Committed implements scheduler.Observer.
func (t traces) Committed(c *scheduler.Committed) error {
	for plan, w := range c.All() {
		t.Commit(plan, w)
	}
	return nil
}

// followTraces makes spans of what is committed until stop is called, which waits for it.
func (n *Node) followTraces() (stop func()) {
	if n.tracer == nil {
		return func() {}
	}
	t := traces{n.tracer}
	remove := n.observers.Add(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.observers.Guard(t.Name(), func() { t.Run(ctx) })
	}()
	return func() {
		remove()
		cancel()
		<-done
	}
}

// closeTraces exports what is left.
func (n *Node) closeTraces(by time.Time) {
	if n.tracer == nil {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	if err := n.tracer.Close(ctx); err != nil {
		n.log.Warn("the last spans are lost", "error", redact.Error(err))
	}
}

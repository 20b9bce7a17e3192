package node

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/redact"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/schema"
)

const (
	surveyEvery = 5 * time.Second // how often what costs a request is looked at, while someone scrapes
	surveyFor   = time.Minute     // after the last scrape
	surveyMost  = 64              // operations that are counted
)

// survey is what a scrape shows and cannot read from memory.
type survey struct {
	scraped    atomic.Int64 // when, by Unix time in seconds
	lag        atomic.Pointer[map[int]int64]
	operations atomic.Pointer[operationCounts]
	forecasts  atomic.Pointer[[]telemetry.Forecast]
	inError    atomic.Pointer[[]telemetry.Type]
	looks      int // so far
}

// forecastLooks is how many looks there are to one at the forecast, which reads a sample of the tasks.
const forecastLooks = 6

// lookAhead keeps what is expected of the unfinished tasks.
func (s *survey) lookAhead(ctx context.Context, n *Node) {
	if s.looks++; s.looks%forecastLooks != 1 {
		return
	}
	s.countErrors(ctx, n)
	f, err := n.Forecast(ctx)
	if err != nil {
		s.forecasts.Store(nil) // what is not known is not shown
		return
	}
	told := make([]telemetry.Forecast, 0, len(f.Plans))
	for i := range f.Plans {
		if p := &f.Plans[i]; p.Chance != nil {
			told = append(told, telemetry.Forecast{Type: p.Type, Version: p.Version, Chance: *p.Chance})
		}
	}
	s.forecasts.Store(&told)
}

// countErrors keeps how many tasks are in error.
func (s *survey) countErrors(ctx context.Context, n *Node) {
	counts, err := n.store.CountsUpTo(ctx, operate.CountExactMax)
	if err != nil {
		s.inError.Store(nil)
		return
	}
	in := []telemetry.Type{}
	for i := range counts {
		if c := &counts[i]; c.State == core.StateError {
			in = append(in, telemetry.Type{Name: c.Type, Created: c.Tasks})
		}
	}
	s.inError.Store(&in)
}

type operationCounts struct{ states, members map[string]int64 }

// run looks from time to time until ctx ends, while someone scrapes.
func (s *survey) run(ctx context.Context, n *Node) {
	for pause.For(ctx, surveyEvery) == nil {
		if time.Since(time.Unix(s.scraped.Load(), 0)) > surveyFor {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		s.look(bounded, n)
		cancel()
	}
}

func (s *survey) look(ctx context.Context, n *Node) {
	if n.owning() != nil {
		lag, _ := n.conn.Backlog(ctx) // what is not known is not shown
		s.lag.Store(&lag)
	}
	if !n.leads() {
		s.operations.Store(nil)
		s.forecasts.Store(nil)
		s.inError.Store(nil)
		return
	}
	s.lookAhead(ctx, n)
	ops, _, err := n.store.Operations(ctx, []operate.OperationState{operate.OperationRunning, operate.OperationPaused, operate.OperationBraked}, surveyMost, "")
	if err != nil {
		s.operations.Store(nil)
		return
	}
	s.operations.Store(countOperations(ops))
}

func countOperations(ops []operate.Operation) *operationCounts {
	c := &operationCounts{states: map[string]int64{}, members: map[string]int64{}}
	for _, state := range []operate.OperationState{operate.OperationRunning, operate.OperationPaused, operate.OperationBraked} {
		c.states[string(state)] = 0
	}
	for i := range ops {
		t := &ops[i].Tally
		c.states[string(ops[i].State)]++
		c.members[string(operate.OutcomeWaiting)] += t.Waiting
		c.members[string(operate.OutcomeAsked)] += t.Asked
		c.members[string(operate.OutcomeDone)] += t.Done
		c.members[string(operate.OutcomeFailedAgain)] += t.FailedAgain
		c.members[string(operate.OutcomeSkipped)] += t.Skipped
	}
	return c
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

// Snapshot implements telemetry.Source.
func (n *Node) Snapshot() telemetry.Snapshot {
	s := telemetry.Snapshot{Ready: len(n.ground.Ready()) == 0, Conditions: map[string]bool{}, Raised: n.raiser.raised.Load(), Unraised: n.raiser.dropped.Load()}
	for _, c := range n.ground.Conditions() {
		s.Conditions[c.Name] = false
	}
	for _, t := range n.ground.Troubles() {
		s.Conditions[t.Name] = true
	}
	if door := n.door.Load(); door != nil {
		stats := door.Stats()
		s.Ingest = &telemetry.Ingest{Outcomes: stats.Outcomes(), Warned: stats.Warned, Packs: stats.Packs, Open: stats.Items, Bytes: stats.Bytes, Outboxes: n.outboxSnapshot()}
	}
	if own := n.owning(); own != nil {
		s.Scheduler = n.schedulerSnapshot(own.Snapshot(), own.Breakers())
	}
	if sup := n.sup.Load(); sup != nil {
		s.Supervisor = &telemetry.Supervisor{Leads: sup.Last().Held, Asked: sup.Asked()}
		if sender := n.Alerts(); sender != nil {
			for _, c := range sender.Counts() {
				s.Supervisor.Channels = append(s.Supervisor.Channels, telemetry.Channel{Kind: c.Kind, Sent: c.Sent, Failed: c.Failed})
			}
		}
		s.Supervisor.Books = n.booksSnapshot()
		s.Supervisor.Schedules = n.schedulesSnapshot()
		if in := n.survey.inError.Load(); in != nil {
			s.Supervisor.InError = *in
		}
		if told := n.survey.forecasts.Load(); told != nil {
			s.Supervisor.Forecasts = *told
		}
		if ops := n.survey.operations.Load(); ops != nil {
			s.Supervisor.Operations, s.Supervisor.Members = ops.states, ops.members
		}
	}
	if pools, ok := n.store.(interface{ Pools() []schema.PoolStat }); ok {
		for _, p := range pools.Pools() {
			s.Pools = append(s.Pools, telemetry.Pool{Name: p.Name, Max: p.Max, Used: p.Used, Idle: p.Idle, Queries: p.Queries, Waits: p.Waits, Waited: p.Waited})
		}
	}
	if held := n.held.Load(); held != nil {
		s.Held = &telemetry.Held{WAL: held.WAL, Snapshot: held.Snapshot}
	}
	s.NATS, s.HTTP = natsSnapshot(n.conn), n.requests.Requests()
	if n.tracer != nil {
		counts := n.tracer.Counts()
		s.Spans = &counts
	}
	return s
}

func natsSnapshot(c *natsbus.Conn) telemetry.NATS {
	s := c.NATS().Stats()
	return telemetry.NATS{Connected: c.Connected(), Reconnects: int64(s.Reconnects), In: int64(s.InMsgs), Out: int64(s.OutMsgs),
		InBytes: int64(s.InBytes), OutBytes: int64(s.OutBytes), Dropped: c.Dropped()}
}

func kindsSnapshot(k *scheduler.Kinds) telemetry.Kinds {
	s := telemetry.Kinds{Waits: k.Waits, Signals: k.Signals, SignalsRefused: k.SignalsRefused, Born: k.Born, Ended: map[string]int64{},
		Skipped: k.Skipped, Expressions: k.Expressions, LateDos: k.LateDos, LateUndos: k.LateUndos, Starts: k.Starts,
		Probes: map[string]int64{"done": k.Probes[scheduler.ProbeDone], "absent": k.Probes[scheduler.ProbeAbsent], "unknown": k.Probes[scheduler.ProbeUnknown]}}
	for state, n := range k.ChildrenEnded() {
		s.Ended[string(state)] = n
	}
	return s
}

func (n *Node) schedulerSnapshot(own scheduler.Snapshot, breakers []core.Breaker) *telemetry.Scheduler {
	st := &own.Stats
	s := &telemetry.Scheduler{InFlight: int64(own.InFlight), Window: int64(own.Window), Overloaded: own.Overloaded, Memory: own.Memory, Owned: len(own.Owned),
		Commits: st.Commits, Writes: st.Writes, Records: st.Records, Do: st.Do, Undo: st.Undo, Stale: st.Stale, Forged: st.Forged + n.conn.Forged(),
		Duplicates: st.Duplicates, Refused: st.Poisoned, Republished: st.Republished, Trouble: st.UndoTrouble, Away: len(own.Away), Breakers: map[string]telemetry.BreakerState{}, Openings: own.Openings,
		Cycles: telemetry.Times{Bounds: scheduler.CycleBounds[:], Counts: own.Cycles.Counts[:], Sum: own.Cycles.Sum}}
	s.Kinds = kindsSnapshot(&st.Kinds)
	for _, t := range own.Types {
		ended := map[string]int64{"asked": t.Asked}
		for state, count := range t.Ended {
			ended[string(state)] = count
		}
		s.Types = append(s.Types, telemetry.Type{Name: t.Type, Created: t.Created, Ended: ended, Took: timesOf(&t.Took), Missed: t.Missed})
	}
	for i := range own.Steps {
		x := &own.Steps[i]
		s.Steps = append(s.Steps, telemetry.Step{Type: x.Type, Agent: x.Agent, Took: timesOf(&x.Took)})
	}
	for _, a := range own.Agents {
		s.Agents = append(s.Agents, telemetry.Agent{Name: a.Agent, Errors: map[string]int64{"failed": a.Failed, "refused": a.Refused, "overdue": a.Overdue}})
	}
	for _, a := range own.Away {
		s.Waiting += int64(a.Tasks)
	}
	now := n.clock.instant()
	for i := range breakers {
		switch state, _ := breakers[i].At(now); state {
		case core.BreakerOpen:
			s.Breakers[breakers[i].Agent] = telemetry.BreakerOpen
		case core.BreakerTrial:
			s.Breakers[breakers[i].Agent] = telemetry.BreakerTrial
		}
	}
	if lag := n.survey.lag.Load(); lag != nil {
		s.Lag = map[int]int64{}
		for _, p := range own.Owned {
			if behind, known := (*lag)[p]; known {
				s.Lag[p] = behind
			}
		}
	}
	return s
}

func timesOf(l *scheduler.Latency) telemetry.Times {
	return telemetry.Times{Bounds: scheduler.LatencyBounds[:], Counts: l.Counts[:], Sum: l.Sum}
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

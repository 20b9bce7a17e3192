package telemetry

import (
	"bytes"
	"cmp"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// PathMetrics is where a node serves its metrics.
const PathMetrics = "/metrics"

// Build says what runs.
type Build struct {
	Version string
	Node    string
	Roles   []string
}

// scrapesMax bounds the scrapes that are made at a time.
const scrapesMax = 4

// Handler serves the metrics of a node. Who asks while others do waits in turn, so that none keeps another out; a reader that
// is slow holds no turn.
func Handler(source Source, build Build) http.Handler {
	scrape := promhttp.HandlerFor(registry(source, build), promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	turns := make(chan struct{}, scrapesMax)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := page{header: w.Header(), status: http.StatusOK}
		select {
		case turns <- struct{}{}:
			func() {
				defer func() { <-turns }()
				scrape.ServeHTTP(&made, r)
			}()
		case <-r.Context().Done():
			return
		}
		w.WriteHeader(made.status)
		_, _ = w.Write(made.Bytes()) // an error is a client that went away
	})
}

// page is an answer that is made before it is sent.
type page struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) { p.status = status }

func registry(source Source, build Build) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newCollector(source, build), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// collector makes metrics of snapshots.
type collector struct {
	source Source
	build  Build
	descs  map[string]*prometheus.Desc
}

func newCollector(source Source, build Build) *collector {
	c := &collector{source: source, build: build, descs: map[string]*prometheus.Desc{}}
	for _, m := range metrics {
		c.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range metrics {
		to <- c.descs[m.Name]
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.source.Snapshot()
	e := emitter{c, to}
	e.put(buildInfo, 1, cmp.Or(c.build.Version, "unknown"), runtime.Version(), c.build.Node, strings.Join(c.build.Roles, ","))
	e.flag(ready, s.Ready)
	for name, trouble := range s.Conditions {
		e.flag(condition, trouble, name)
	}
	e.count(alertsRaised, s.Raised)
	e.count(alertsDropped, s.Unraised)
	e.ingest(s.Ingest)
	e.scheduler(s.Scheduler)
	e.supervisor(s.Supervisor)
	for _, p := range s.Pools {
		e.count(poolMax, p.Max, p.Name)
		e.count(poolUsed, p.Used, p.Name)
		e.count(poolIdle, p.Idle, p.Name)
		e.count(poolQueries, p.Queries, p.Name)
		e.count(poolWaits, p.Waits, p.Name)
		e.put(poolWaitTime, p.Waited.Seconds(), p.Name)
	}
	if s.Held != nil {
		e.count(heldWAL, s.Held.WAL)
		e.put(heldSnapshot, s.Held.Snapshot.Seconds())
	}
	e.flag(natsConnected, s.NATS.Connected)
	e.count(natsReconnect, s.NATS.Reconnects)
	e.count(natsMessages, s.NATS.In, "in")
	e.count(natsMessages, s.NATS.Out, "out")
	e.count(natsBytes, s.NATS.InBytes, "in")
	e.count(natsBytes, s.NATS.OutBytes, "out")
	e.count(natsDropped, s.NATS.Dropped)
	if s.Spans != nil {
		e.count(spansMade, s.Spans.Made)
		e.count(spansDropped, s.Spans.Dropped)
	}
}

// emitter puts single values.
type emitter struct {
	c  *collector
	to chan<- prometheus.Metric
}

func (e emitter) put(m Metric, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if m.Kind == Counter {
		kind = prometheus.CounterValue
	}
	e.to <- prometheus.MustNewConstMetric(e.c.descs[m.Name], kind, value, labels...)
}

func (e emitter) count(m Metric, value int64, labels ...string) { e.put(m, float64(value), labels...) }

func (e emitter) flag(m Metric, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	e.put(m, value, labels...)
}

func (e emitter) times(m Metric, t Times) {
	var all int64
	buckets := map[float64]uint64{}
	for i, n := range t.Counts {
		all += n
		if i < len(t.Bounds) {
			buckets[t.Bounds[i].Seconds()] = uint64(all)
		}
	}
	e.to <- prometheus.MustNewConstHistogram(e.c.descs[m.Name], uint64(all), t.Sum.Seconds(), buckets)
}

func (e emitter) ingest(s *Ingest) {
	if s == nil {
		return
	}
	for outcome, n := range s.Outcomes {
		e.count(submissions, n, outcome)
	}
	e.count(submissionsWarned, s.Warned)
	e.count(submissionPacks, s.Packs)
	e.count(submissionsOpen, s.Open)
	e.count(submissionsBytes, s.Bytes)
	for _, o := range s.Outboxes {
		e.count(outboxRelayed, o.Relayed, o.Name)
		e.count(outboxPutOff, o.PutOff, o.Name)
		if o.Standing == nil {
			continue
		}
		e.count(outboxWaiting, o.Standing.Waiting, o.Name)
		e.put(outboxOldest, o.Standing.Oldest.Seconds(), o.Name)
		e.count(outboxRefused, o.Standing.Refused, o.Name)
	}
}

func (e emitter) scheduler(s *Scheduler) {
	if s == nil {
		return
	}
	for _, t := range merged(s.Types) {
		e.count(tasksCreated, t.Created, t.Name)
		for state, n := range t.Ended {
			e.count(tasksEnded, n, t.Name, state)
		}
	}
	e.count(inFlight, s.InFlight)
	e.count(window, s.Window)
	e.flag(overloaded, s.Overloaded)
	e.count(memoryUsed, s.Memory)
	e.count(partitions, int64(s.Owned))
	for p, lag := range s.Lag {
		e.count(partitionLag, lag, strconv.Itoa(p))
	}
	e.count(agentsAway, int64(s.Away))
	e.count(waitingTasks, s.Waiting)
	for agent, state := range s.Breakers {
		e.count(breakerState, int64(state), agent)
	}
	e.count(breakerOpens, s.Openings)
	e.times(commitCycle, s.Cycles)
	e.count(commits, s.Commits)
	e.count(commitWrites, s.Writes)
	e.count(commitRecords, s.Records)
	e.count(commands, s.Do, "do")
	e.count(commands, s.Undo, "undo")
	e.count(repliesBad, s.Stale, "stale")
	e.count(repliesBad, s.Forged, "forged")
	e.count(duplicates, s.Duplicates)
	e.count(poisoned, s.Refused)
	e.count(republished, s.Republished)
	e.count(undoTrouble, s.Trouble)
	e.kinds(&s.Kinds)
}

func (e emitter) kinds(k *Kinds) {
	e.count(waitsEnded, k.Waits)
	e.count(signals, k.Signals, "taken")
	e.count(signals, k.SignalsRefused, "refused")
	e.count(childrenBorn, k.Born)
	for state, n := range k.Ended {
		e.count(childrenEnded, n, state)
	}
	e.count(stepsSkipped, k.Skipped)
	e.count(expressionsFail, k.Expressions)
	e.count(lateAnswers, k.LateDos, "do")
	e.count(lateAnswers, k.LateUndos, "undo")
	for outcome, n := range k.Probes {
		e.count(probes, n, outcome)
	}
	e.count(tasksStarted, k.Starts)
}

// TypesMax bounds the types of tasks that are told apart; TypeOther is all others.
const (
	TypesMax  = 64
	TypeOther = "other"
)

// merged adds up types of the same name, of which there are TypesMax at most and one for all others.
func merged(all []Type) []Type {
	byName := map[string]*Type{}
	var names []string
	add := func(name string, t Type) {
		sum := byName[name]
		if sum == nil {
			sum = &Type{Name: name, Ended: map[string]int64{}}
			byName[name] = sum
			names = append(names, name)
		}
		sum.Created += t.Created
		for state, n := range t.Ended {
			sum.Ended[state] += n
		}
	}
	for _, t := range all {
		name := t.Name
		if byName[name] == nil && len(byName) >= TypesMax {
			name = TypeOther
		}
		add(name, t)
	}
	slices.Sort(names)
	out := make([]Type, len(names))
	for i, name := range names {
		out[i] = *byName[name]
	}
	return out
}

func (e emitter) books(b *Books) {
	if b == nil {
		return
	}
	e.flag(booksClosed, b.Closed)
	e.put(booksAt, float64(b.At.Unix()))
	e.count(booksEffects, b.Effects)
	e.count(booksAccepted, b.Accepted)
	e.count(booksSilent, b.Silent)
	for kind, n := range b.Ghosts {
		e.count(booksGhosts, n, kind)
	}
}

func (e emitter) schedules(s *Schedules) {
	if s == nil {
		return
	}
	e.count(schedulesSubmitted, s.Submitted)
	e.count(schedulesSkipped, s.Skipped)
	e.count(schedulesMissed, s.Missed)
	e.count(schedulesFailed, s.Failed)
	e.count(schedulesFailing, s.Failing)
	e.put(schedulesLag, s.Lag.Seconds())
}

func (e emitter) supervisor(s *Supervisor) {
	if s == nil {
		return
	}
	e.flag(leads, s.Leads)
	e.books(s.Books)
	e.schedules(s.Schedules)
	e.count(overdueAsked, s.Asked)
	for _, c := range s.Channels {
		e.count(alertsSent, c.Sent, c.Kind)
		e.count(alertsFailed, c.Failed, c.Kind)
	}
	for _, f := range s.Forecasts {
		e.put(forecastChance, f.Chance, f.Type, strconv.FormatInt(f.Version, 10))
	}
	for state, n := range s.Operations {
		e.count(operations, n, state)
	}
	for outcome, n := range s.Members {
		e.count(opMembers, n, outcome)
	}
}

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedules"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/supervisor"
)

// Names of the conditions of schedules, and of the alert about runs that are left out.
const (
	condSchedules     = "schedules"        // they are carried out
	condSubmissions   = "schedules-failed" // their submissions are taken
	alertMissed       = "schedule-missed"
	failingSchedules  = 64 // that are told of at a time
	scheduleAnswerMax = 10 * time.Second
)

// schedulesConditions are what an operator is told of schedules.
func (n *Node) schedulesConditions() []ground.Condition {
	return []ground.Condition{{
		Name: condSchedules, Wanted: "schedules are carried out", Begin: "schedules are not carried out", End: "schedules are carried out again",
	}, {
		Name: condSubmissions, Wanted: "tasks of schedules are taken", Begin: "tasks of a schedule are not taken", End: "tasks of the schedule are taken again",
		Shared: true, Every: watchEvery, Each: n.probeSubmissions,
	}}
}

// probeSubmissions are the schedules whose submissions fail, where this node's supervisor leads.
func (n *Node) probeSubmissions(context.Context) []ground.Found {
	r := n.schedules.Load()
	if r == nil || !n.leads() {
		return nil
	}
	failing := r.Stats().Failing
	var all []ground.Found
	for _, name := range slices.Sorted(maps.Keys(failing)) {
		if len(all) == failingSchedules {
			break
		}
		all = append(all, ground.Found{Key: name, Err: fmt.Errorf("schedule %s: %s", name, failing[name])})
	}
	return all
}

// runSchedules carries schedules out while the supervisor of this node leads, and returns what ends that and waits for its
// end.
func (n *Node) runSchedules(ctx context.Context, sup *supervisor.Runner) (end func()) {
	r := schedules.NewRunner(schedules.Config{
		Interval: n.cfg.ScanInterval, Now: n.clock.time, Report: func(err error) { n.report(condSchedules, err) }, Missed: n.missedRuns,
	}, n.store, scheduleTasks{n}, handOver{n.conn}, supervises{sup}, n.log)
	n.schedules.Store(r)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	return func() {
		cancel()
		wg.Wait()
		n.schedules.Store(nil)
	}
}

// missedRuns tells of runs that are left out.
func (n *Node) missedRuns(name string, runs int64, since time.Time) {
	n.ground.Once(ground.Alert{Phase: ground.Once, Name: alertMissed, Key: name, Text: "runs of a schedule could not be submitted in time, and are left out", Times: int(min(runs, 1<<30)),
		Attrs: []slog.Attr{slog.String("schedule", name), slog.Int64("runs", runs), slog.Time("since", since)}})
}

// schedulesSnapshot is what the metrics show of schedules; nil: nothing.
func (n *Node) schedulesSnapshot() *telemetry.Schedules {
	r := n.schedules.Load()
	if r == nil {
		return nil
	}
	s := r.Stats()
	return &telemetry.Schedules{Submitted: s.Submitted, Skipped: s.Skipped, Missed: s.Missed, Failed: s.Failed, Failing: int64(len(s.Failing)), Lag: s.Lag}
}

// scheduling is how operators see schedules and change them; nil: there is no audit trail.
func (n *Node) scheduling(trail operate.TrailWriter) operate.Schedules {
	if trail == nil {
		return nil
	}
	return &operate.Scheduling{Store: n.store, Plans: n.store.Plans, Trail: trail, Submit: ownDoor{n}, Now: n.clock.time, CheckInput: n.schemas.input}
}

// scheduleTasks is schedules.Tasks on the state store.
type scheduleTasks struct{ n *Node }

// States implements schedules.Tasks.
func (s scheduleTasks) States(ctx context.Context, ids []string) (map[string]schedules.State, error) {
	of := map[int][]string{}
	for _, id := range ids {
		p := wire.PartitionOf(id, s.n.cfg.Partitions)
		of[p] = append(of[p], id)
	}
	states := make(map[string]schedules.State, len(ids))
	for partition, some := range of {
		found, err := s.n.store.Existing(ctx, partition, some)
		if err != nil {
			return nil, err
		}
		for _, is := range found {
			states[is.ID] = schedules.State{State: is.State, Why: is.Reason}
		}
	}
	return states, nil
}

// handOver is operate.Submitter on the request endpoint of any node.
type handOver struct{ conn *natsbus.Conn }

// Submit implements operate.Submitter.
func (h handOver) Submit(ctx context.Context, f submit.Form) error {
	err := h.conn.Hand(ctx, f)
	if refused, ok := errors.AsType[*wire.RefusedError](err); ok {
		return &operate.Refusal{Code: refused.Code, Detail: refused.Description, RetryMS: refused.Retry.Milliseconds()}
	}
	return err
}

// ownDoor is operate.Submitter on this node's request endpoint.
type ownDoor struct{ n *Node }

// Submit implements operate.Submitter.
func (d ownDoor) Submit(ctx context.Context, f submit.Form) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleAnswerMax)
	defer cancel()
	answered := make(chan ingest.Answer, 1)
	d.n.Submit(ingest.Request{Form: f, Answer: func(a ingest.Answer) { answered <- a }})
	select {
	case a := <-answered:
		if a.Err != nil {
			return &operate.Refusal{Code: a.Err.Code, Detail: a.Err.Description, RetryMS: a.Err.Retry.Milliseconds()}
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("task %s: %w", f.ID, ctx.Err())
	}
}

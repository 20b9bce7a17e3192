package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/schedules"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/supervisor"
)

// Names of the conditions of schedules, and of the alert about runs that are left out.
const (
	condSchedules     = "schedules"        // they are carried out
	condSubmissions   = "schedules-failed" // their submissions are taken
	alertMissed       = "schedule-missed"
	alertSkipped      = "schedule-skipped"
	failingSchedules  = 64 // that are told of at a time
	scheduleAnswerMax = 10 * time.Second
)

// schedulesConditions are what an operator is told of schedules.
func (n *Node) schedulesConditions() []ground.Condition {
	return []ground.Condition{{
		Name: condSchedules,
	}, {
		Name: condSubmissions, Shared: true, Every: watchEvery, Each: n.probeSubmissions,
	}}
}

// probeSubmissions are the schedules whose submissions fail, where this node's supervisor leads.
func (n *Node) probeSubmissions(ctx context.Context) []ground.Found {
	r := n.schedules.Load()
	if r == nil {
		return nil
	}
	return n.asLeader(ctx, func() (all []ground.Found, _ error) {
		failing := r.Stats().Failing
		for _, name := range slices.Sorted(maps.Keys(failing)) {
			if len(all) == failingSchedules {
				break
			}
			all = append(all, ground.Found{Key: name, Err: fmt.Errorf("schedule %s: %s", name, failing[name])})
		}
		return all, nil
	})
}

// runSchedules carries schedules out while the supervisor of this node leads, and returns what ends that and waits for its
// end.
func (n *Node) runSchedules(ctx context.Context, sup *supervisor.Runner) (end func()) {
	r := schedules.NewRunner(schedules.Config{
		Interval: n.cfg.ScanInterval, Now: n.clock.time, Report: func(err error) { n.report(condSchedules, err) },
		Missed:  n.leftOut(alertMissed, say.Of("alert.missed")),
		Skipped: n.leftOut(alertSkipped, say.Of("alert.skipped")),
	}, n.store, scheduleTasks{n}, handOver{n.conn}, supervises{sup}, n.log)
	n.schedules.Store(r)
	stop := begin(ctx, r.Run)
	return func() {
		stop()
		n.schedules.Store(nil)
	}
}

// leftOut returns what tells of runs that are left out.
func (n *Node) leftOut(alert, text string) func(name string, runs int64, since time.Time) {
	return func(name string, runs int64, since time.Time) { n.tellLeftOut(alert, text, name, runs, since) }
}

func (n *Node) tellLeftOut(alert, text, name string, runs int64, since time.Time) {
	n.ground.Once(ground.Alert{Phase: ground.Once, Name: alert, Key: name, Text: text, Times: int(min(runs, 1<<30)),
		Attrs: []slog.Attr{slog.String("schedule", name), slog.Int64("runs", runs), slog.Time("since", since)}})
}

// scheduling is how operators see schedules and change them.
func (n *Node) scheduling() operate.Schedules {
	return &operate.Scheduling{Store: n.store, Plans: n.store.Plans, Deprecated: n.store.Deprecated, Desk: n.desk(), Submit: ownDoor{n}, Now: n.clock.time, Known: scheduleTasks{n}.known, CheckInput: n.schemas.input}
}

// scheduleTasks is schedules.Tasks on the state store.
type scheduleTasks struct{ n *Node }

// States implements schedules.Tasks.
func (s scheduleTasks) States(ctx context.Context, ids []string) (map[string]schedules.State, error) {
	states := make(map[string]schedules.State, len(ids))
	for partition, some := range s.byPartition(ids) {
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

func (s scheduleTasks) known(ctx context.Context, id string) (bool, error) {
	states, err := s.States(ctx, []string{id})
	return len(states) > 0, err
}

func (s scheduleTasks) byPartition(ids []string) map[int][]string {
	of := map[int][]string{}
	for _, id := range ids {
		p := wire.PartitionOf(id, s.n.cfg.Partitions)
		of[p] = append(of[p], id)
	}
	return of
}

// Unread implements schedules.Tasks.
func (s scheduleTasks) Unread(ctx context.Context, ids []string, before time.Time) (map[string]bool, error) {
	unread := make(map[string]bool, len(ids))
	for partition, some := range s.byPartition(ids) {
		is, err := s.n.unread(ctx, partition, core.InstantOf(before))
		if err != nil {
			return nil, err
		}
		for _, id := range some {
			unread[id] = is
		}
	}
	return unread, nil
}

// Read implements schedules.Tasks.
func (s scheduleTasks) Read(ctx context.Context, tasks []operate.ScheduleTask) (read []operate.ScheduleTask, err error) {
	var of []int
	for i := range tasks {
		of = append(of, wire.PartitionOf(tasks[i].Task, s.n.cfg.Partitions))
	}
	states, err := s.n.store.CursorsOf(ctx, of, "")
	if err != nil {
		return nil, err
	}
	cursors := make(map[int]uint64, len(states))
	for i := range states {
		cursors[states[i].Partition] = states[i].Cursor
	}
	for i, p := range of {
		if cursors[p] >= tasks[i].Place {
			read = append(read, tasks[i])
		}
	}
	return read, nil
}

// handOver is operate.Submitter on the request endpoint of any node.
type handOver struct{ conn *natsbus.Conn }

// Submit implements operate.Submitter.
func (h handOver) Submit(ctx context.Context, f submit.Form) (place uint64, err error) {
	place, err = h.conn.Hand(ctx, f)
	if refused, ok := errors.AsType[*wire.RefusedError](err); ok {
		return 0, &operate.Refusal{Code: refused.Code, Detail: refused.Description, RetryMS: refused.Retry.Milliseconds(), Taken: refused.ErrCode == ingest.CauseConflict}
	}
	return place, err
}

// ownDoor is operate.Submitter on this node's request endpoint.
type ownDoor struct{ n *Node }

// Submit implements operate.Submitter.
func (d ownDoor) Submit(ctx context.Context, f submit.Form) (place uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, scheduleAnswerMax)
	defer cancel()
	answered := make(chan ingest.Answer, 1)
	d.n.Submit(ingest.Request{Form: f, Answer: func(a ingest.Answer) { answered <- a }})
	select {
	case a := <-answered:
		if a.Err != nil {
			return 0, &operate.Refusal{Code: a.Err.Code, Detail: a.Err.Description, RetryMS: a.Err.Retry.Milliseconds(), Taken: a.Err.ErrCode == ingest.CauseConflict}
		}
		return a.Seq, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("task %s: %w", f.ID, ctx.Err())
	}
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"duly.dev/duly/bench/peers/harness"
	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/history"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/postgres"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/core"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver that the backend is written for
)

// books counts by workflow instance. A step's result is an event of the instance's
// history: an activity that completed.
var books = fmt.Sprintf(`
WITH task AS (
	SELECT i.instance_id, i.state, count(h.id) AS results, count(DISTINCT h.schedule_event_id) AS steps
	FROM instances i LEFT JOIN history h ON h.instance_id = i.instance_id AND h.execution_id = i.execution_id AND h.event_type = %d
	GROUP BY 1, 2)
SELECT count(*), count(*) FILTER (WHERE state = %d AND steps = $1::int), count(*) FILTER (WHERE results > $1) FROM task`,
	history.EventType_ActivityCompleted, core.WorkflowInstanceStateFinished)

type tuning struct {
	conns             int
	workflowPollers   int
	activityPollers   int
	executorCacheSize int
}

func spec() harness.Spec {
	var t tuning
	return harness.Spec{
		System: "goworkflows", Module: "github.com/cschleiden/go-workflows",
		Workers: func(int) int { return 64 }, Batch: 1, Books: func() string { return books },
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&t.conns, "conns", 100, "connections of the pool; 100 is what the library's own benchmark sets")
			flags.IntVar(&t.workflowPollers, "workflow-pollers", 4, "WorkflowPollers of the worker")
			flags.IntVar(&t.activityPollers, "activity-pollers", 4, "ActivityPollers of the worker")
			flags.IntVar(&t.executorCacheSize, "executor-cache", 1024, "WorkflowExecutorCacheSize of the worker: as many workflows continue without a replay")
		},
		New: func(set harness.Settings) (harness.Peer, error) {
			return &peer{tuning: t, steps: set.Steps}, nil
		},
		Tuned: func(harness.Settings) map[string]any {
			return map[string]any{
				"backend": "postgres, in a monoprocess backend", "max_open_conns": t.conns, "max_idle_conns": t.conns,
				"WorkflowPollers": t.workflowPollers, "ActivityPollers": t.activityPollers, "WorkflowExecutorCacheSize": t.executorCacheSize,
				"polling_interval": "200ms, the default; the monoprocess backend wakes the pollers before",
				"step":             "one activity, awaited before the next is scheduled",
			}
		},
	}
}

type peer struct {
	tuning
	steps  int
	db     *sql.DB
	client *client.Client
	worker *worker.Worker
	stop   context.CancelFunc
}

// Open starts a worker on an empty database.
func (p *peer) Open(ctx context.Context, dsn string, ended harness.Ended) error {
	var err error
	if p.db, err = sql.Open("pgx", dsn); err != nil {
		return err
	}
	p.db.SetMaxOpenConns(p.conns)
	p.db.SetMaxIdleConns(p.conns) // database/sql keeps 2, and would reconnect for the others
	store := postgres.NewPostgresBackendWithDB(p.db, postgres.WithApplyMigrations(true), postgres.WithBackendOptions(
		backend.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))))
	all := monoprocess.NewMonoprocessBackend(&observed{Backend: store, ended: ended})
	options := worker.DefaultOptions
	options.WorkflowPollers, options.ActivityPollers = p.workflowPollers, p.activityPollers
	options.WorkflowExecutorCacheSize = p.executorCacheSize
	p.worker, p.client = worker.New(all, &options), client.New(all)
	if err := errors.Join(p.worker.RegisterWorkflow(deliver), p.worker.RegisterActivity(step)); err != nil {
		return err
	}
	var run context.Context
	run, p.stop = context.WithCancel(context.WithoutCancel(ctx)) // ended by Close
	return p.worker.Start(run)
}

// Submit creates an instance. CreateWorkflowInstance returns when it is committed.
func (p *peer) Submit(ctx context.Context, tasks []harness.Task) error {
	for _, t := range tasks {
		if _, err := p.client.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: t.Order.ID}, deliver, t.Order, p.steps); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the pollers and waits for what they have begun.
func (p *peer) Close(context.Context) error {
	if p.stop == nil {
		return nil
	}
	p.stop()
	return errors.Join(p.worker.WaitForCompletion(), p.db.Close())
}

// deliver is the workflow.
func deliver(ctx workflow.Context, order harness.Order, steps int) (harness.StepResult, error) {
	var last harness.StepResult
	for i := 1; i <= steps; i++ {
		result, err := workflow.ExecuteActivity[harness.StepResult](ctx, workflow.DefaultActivityOptions, step, order, i).Get(ctx)
		if err != nil {
			return last, err
		}
		last = result
	}
	return last, nil
}

// step is the activity. It has the order as an argument because an activity may
// run where the workflow does not.
func step(_ context.Context, order harness.Order, i int) (harness.StepResult, error) {
	harness.Ran()
	return harness.Step(order, i), nil
}

// observed reports the instances that have finished once that is committed. The
// library's own way to wait for one, WaitForWorkflowInstance, asks the database
// again and again: load that the measured work does not need.
type observed struct {
	backend.Backend
	ended harness.Ended
}

// CompleteWorkflowTask commits what a workflow has done since its last event.
func (o *observed) CompleteWorkflowTask(
	ctx context.Context, task *backend.WorkflowTask, state core.WorkflowInstanceState,
	executed, activities, timers []*history.Event, events []*history.WorkflowEvent,
) error {
	err := o.Backend.CompleteWorkflowTask(ctx, task, state, executed, activities, timers, events)
	if err == nil && state == core.WorkflowInstanceStateFinished {
		number, nerr := harness.Number(task.WorkflowInstance.InstanceID)
		o.ended(number, nerr)
	}
	return err
}

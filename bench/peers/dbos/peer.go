package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"duly.dev/duly/bench/peers/harness"
	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

// books counts by workflow. A step's result is its row in operation_outputs.
const books = `
WITH task AS (
	SELECT w.workflow_uuid, w.status, count(o.function_id) FILTER (WHERE o.output IS NOT NULL AND o.error IS NULL) AS results
	FROM dbos.workflow_status w LEFT JOIN dbos.operation_outputs o USING (workflow_uuid)
	WHERE w.name = 'deliver' GROUP BY 1, 2)
SELECT count(*), count(*) FILTER (WHERE status = 'SUCCESS' AND results >= $1::int), count(*) FILTER (WHERE results > $1) FROM task`

// stopLimit is how long the workflows may take to end when the context is shut down.
const stopLimit = 10 * time.Second

func spec() harness.Spec {
	var conns int
	return harness.Spec{
		System: "dbos", Module: "github.com/dbos-inc/dbos-transact-golang",
		Workers: func(int) int { return 64 }, Batch: 1, Books: func() string { return books },
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&conns, "conns", 20, "connections of the pool; 20 is the default of DBOS")
		},
		New: func(set harness.Settings) (harness.Peer, error) {
			return &peer{conns: conns, steps: set.Steps}, nil
		},
		Tuned: func(harness.Settings) map[string]any {
			return map[string]any{
				"pool_max_conns": conns,
				"start":          "RunWorkflow with a workflow id, no queue",
				"step":           "RunAsStep, without retries",
			}
		},
	}
}

// input is a workflow's argument: what is accepted is an order and how many steps
// are done to it.
type input struct {
	Order harness.Order `json:"order"`
	Steps int           `json:"steps"`
}

// deliver is the workflow. Every step's result is recorded before the next begins.
func deliver(ctx dbos.Context, in input) (harness.StepResult, error) {
	var last harness.StepResult
	for i := 1; i <= in.Steps; i++ {
		result, err := dbos.RunAsStep(ctx, func(context.Context) (harness.StepResult, error) {
			harness.Ran()
			return harness.Step(in.Order, i), nil
		}, dbos.WithStepName("step"+strconv.Itoa(i)))
		if err != nil {
			return last, err
		}
		last = result
	}
	return last, nil
}

type peer struct {
	conns, steps int
	pool         *pgxpool.Pool
	dbos         dbos.Context
	ended        harness.Ended
	waiting      sync.WaitGroup
}

// Open starts a DBOS context on an empty database.
func (p *peer) Open(ctx context.Context, dsn string, ended harness.Ended) error {
	p.ended = ended
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.MaxConns = int32(p.conns)
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	p.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{ // ended by Close
		AppName: "duly-peer", ApplicationVersion: "1", SystemDBPool: p.pool,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(p.dbos, deliver, dbos.WithWorkflowName("deliver"))
	return dbos.Launch(p.dbos)
}

// Submit starts a workflow. RunWorkflow returns when the workflow's input is committed.
func (p *peer) Submit(_ context.Context, tasks []harness.Task) error {
	for _, t := range tasks {
		handle, err := dbos.RunWorkflow(p.dbos, deliver, input{Order: t.Order, Steps: p.steps}, dbos.WithWorkflowID(t.Order.ID))
		if err != nil {
			return err
		}
		p.waiting.Go(func() {
			_, err := handle.GetResult() // after the workflow's outcome is committed
			p.ended(t.Number, err)
		})
	}
	return nil
}

// Close waits for what is still running.
func (p *peer) Close(context.Context) error {
	if p.dbos == nil {
		return nil
	}
	err := dbos.Shutdown(p.dbos, stopLimit)
	p.waiting.Wait()
	p.pool.Close()
	return err
}

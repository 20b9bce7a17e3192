package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"duly.dev/duly/bench/peers/harness"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// chainBooks counts by task. A step's result is the output on its job's row. A
// chain never has more jobs than steps, so more of either is work done twice.
const chainBooks = `
WITH task AS (
	SELECT args->>'task' AS id, count(*) AS jobs,
		count(*) FILTER (WHERE state = 'completed' AND metadata ? 'output') AS results,
		count(DISTINCT args->>'step') FILTER (WHERE state = 'completed' AND metadata ? 'output') AS steps
	FROM river_job GROUP BY 1)
SELECT count(*), count(*) FILTER (WHERE steps = $1::int), count(*) FILTER (WHERE results > $1 OR jobs > $1) FROM task`

// resumableBooks counts by job, which is a task: the results of all steps but the
// last are rows of their own, the last is the output on the job's row.
const resumableBooks = `
WITH task AS (
	SELECT j.args->>'task' AS id, count(DISTINCT j.id) AS jobs, count(r.step) + 1 AS results,
		bool_and(j.state = 'completed' AND j.metadata ? 'output') AS completed
	FROM river_job j LEFT JOIN step_result r ON r.job = j.id GROUP BY 1)
SELECT count(*), count(*) FILTER (WHERE completed AND results >= $1::int), count(*) FILTER (WHERE results > $1 OR jobs > 1) FROM task`

// resultTable is the application's own, where a resumable job has its results:
// River keeps which step was done, not what it gave.
const resultTable = `CREATE TABLE step_result (job bigint, step int, result jsonb NOT NULL, PRIMARY KEY (job, step))`

// eventBuffer holds the events of jobs that have completed. River drops what does
// not fit, and a dropped event is a task that never ends here, so it is the size
// that River's own benchmark uses.
const eventBuffer = 75_000

// The shapes of a task of several steps.
const (
	chain     = "chain"     // a job for each step, inserted with the completion of the one before
	resumable = "resumable" // one job with resumable steps
)

// tuning is what the flags set. The defaults of the durations and of maxWorkers
// are what River's own benchmark, river bench, sets instead of the library's defaults.
type tuning struct {
	shape          string
	cooldown, poll time.Duration
	maxWorkers     int
	conns          int
	pollOnly       bool
}

func spec() harness.Spec {
	var t tuning
	return harness.Spec{
		System: "river", Module: "github.com/riverqueue/river",
		Workers: func(steps int) int { return inFlight(steps, t.shape) }, Batch: 5000, Submitters: 2,
		Books: func() string {
			if t.shape == resumable {
				return resumableBooks
			}
			return chainBooks
		},
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&t.shape, "shape", chain, "of a task: chain, a job for each step; or resumable, one job with resumable steps")
			flags.DurationVar(&t.cooldown, "fetch-cooldown", 2*time.Millisecond, "River's FetchCooldown")
			flags.DurationVar(&t.poll, "fetch-poll", 20*time.Millisecond, "River's FetchPollInterval")
			flags.IntVar(&t.maxWorkers, "max-workers", 2000, "River's MaxWorkers of the queue")
			flags.IntVar(&t.conns, "conns", 20, "connections of the pool")
			flags.BoolVar(&t.pollOnly, "poll-only", false, "River's PollOnly: no LISTEN and NOTIFY")
		},
		New: func(set harness.Settings) (harness.Peer, error) {
			if t.shape != chain && t.shape != resumable {
				return nil, fmt.Errorf("-shape is %s or %s, not %q", chain, resumable, t.shape)
			}
			return &peer{tuning: t, steps: set.Steps}, nil
		},
		Tuned: func(harness.Settings) map[string]any {
			step := "RecordOutput, JobCompleteTx and InsertTx of the next job in one transaction"
			if t.shape == resumable {
				step = "ResumableSetStepTx and a row of the application's with the result in one transaction"
			}
			return map[string]any{
				"shape":         t.shape,
				"FetchCooldown": t.cooldown.String(), "FetchPollInterval": t.poll.String(), "MaxWorkers": t.maxWorkers,
				"PollOnly": t.pollOnly, "pool_max_conns": t.conns, "insert": "InsertManyFast (COPY)", "subscribe_chan_size": eventBuffer,
				"step":      step,
				"last_step": "RecordOutput, completed by River's batch completer",
				"completer": "River's batch completer; it has no settings",
			}
		},
	}
}

// inFlight is the default of -workers. Jobs of one step are completed in batches,
// and more in flight makes the batches larger; steps that have a transaction of
// their own only wait for each other when more are in flight.
func inFlight(steps int, shape string) int {
	switch {
	case steps == 1:
		return 2000
	case shape == resumable:
		return 100
	default:
		return 300
	}
}

// step is one job: one step of a task. River gives jobs nothing in common, so each
// carries the order on to the next.
type step struct {
	Task  string        `json:"task"`
	Step  int           `json:"step"`
	Order harness.Order `json:"order"`
}

// Kind is River's name of this kind of job.
func (step) Kind() string { return "deliver" }

type peer struct {
	tuning
	steps  int
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	last   sync.Map // task's name by the id of its last job, until River reports the job
	events sync.WaitGroup
	cancel func() // of the subscription
}

// Open starts River's client on an empty database.
func (p *peer) Open(ctx context.Context, dsn string, ended harness.Ended) error {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.MaxConns = int32(p.conns)
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	driver := riverpgxv5.New(p.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	if _, err := p.pool.Exec(ctx, resultTable); err != nil {
		return err
	}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &worker{peer: p}); err != nil {
		return err
	}
	p.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown: p.cooldown, FetchPollInterval: p.poll, PollOnly: p.pollOnly,
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: p.maxWorkers}},
		Workers: workers,
	})
	if err != nil {
		return err
	}
	// An event comes after the completer has committed the job, a worker's return
	// before: only the event is the end of a task.
	events, cancel := p.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: eventBuffer,
		Kinds:    []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled},
	})
	p.cancel = cancel
	p.events.Go(func() { p.watch(events, ended) })
	return p.client.Start(context.WithoutCancel(ctx)) // ended by Close
}

// watch reports the tasks whose last job has completed, and those of which a job
// has failed for good. A job that will be tried again is no end.
func (p *peer) watch(events <-chan *river.Event, ended harness.Ended) {
	for event := range events {
		if event == nil {
			return
		}
		name, isLast := p.last.LoadAndDelete(event.Job.ID)
		switch {
		case event.Kind == river.EventKindJobCompleted && isLast:
			number, err := harness.Number(name.(string))
			ended(number, err)
		case event.Job.State == rivertype.JobStateDiscarded, event.Job.State == rivertype.JobStateCancelled:
			var args step
			err := json.Unmarshal(event.Job.EncodedArgs, &args)
			number, nerr := harness.Number(args.Task)
			ended(number, errors.Join(err, nerr, fmt.Errorf("step %d is %s", args.Step, event.Job.State)))
		}
	}
}

// Submit inserts the first job of every task in one go.
func (p *peer) Submit(ctx context.Context, tasks []harness.Task) error {
	params := make([]river.InsertManyParams, len(tasks))
	for i, t := range tasks {
		params[i].Args = step{Task: t.Order.ID, Step: 1, Order: t.Order}
	}
	n, err := p.client.InsertManyFast(ctx, params)
	if err == nil && n != len(tasks) {
		err = fmt.Errorf("%d of %d jobs were inserted", n, len(tasks))
	}
	return err
}

// Close stops the client, which completes what the batch completer still holds.
func (p *peer) Close(ctx context.Context) error {
	if p.client == nil {
		return nil
	}
	err := p.client.Stop(ctx)
	p.cancel()
	p.events.Wait()
	p.pool.Close()
	return err
}

type worker struct {
	river.WorkerDefaults[step]
	peer *peer
}

// Work does one step, or all of a resumable job.
func (w *worker) Work(ctx context.Context, job *river.Job[step]) error {
	if w.peer.shape == resumable {
		w.peer.allSteps(ctx, job)
		return nil // River takes a step's error itself
	}
	if job.Args.Step == w.peer.steps {
		return w.peer.lastStep(ctx, job, job.Args.Step)
	}
	return w.peer.completeAndGoOn(ctx, job)
}

// lastStep leaves the completion, and with it the result, to the batch completer:
// nothing follows that would have to wait for it.
func (p *peer) lastStep(ctx context.Context, job *river.Job[step], number int) error {
	harness.Ran()
	p.last.Store(job.ID, job.Args.Task)
	return river.RecordOutput(ctx, harness.Step(job.Args.Order, number))
}

// completeAndGoOn makes the step's result and the next job durable together, so a
// chain can neither break nor fork.
func (p *peer) completeAndGoOn(ctx context.Context, job *river.Job[step]) error {
	harness.Ran()
	if err := river.RecordOutput(ctx, harness.Step(job.Args.Order, job.Args.Step)); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		next := job.Args
		next.Step++
		if _, err := p.client.InsertTx(ctx, tx, next, nil); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// allSteps does the steps of a resumable job. Each but the last makes its result
// and the step itself durable together.
func (p *peer) allSteps(ctx context.Context, job *river.Job[step]) {
	for i := 1; i <= p.steps; i++ {
		river.ResumableStep(ctx, "step"+strconv.Itoa(i), nil, func(ctx context.Context) error {
			if i == p.steps {
				return p.lastStep(ctx, job, i)
			}
			harness.Ran()
			return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO step_result VALUES ($1, $2, $3)", job.ID, i, harness.Step(job.Args.Order, i)); err != nil {
					return err
				}
				_, err := river.ResumableSetStepTx[*riverpgxv5.Driver](ctx, tx, job)
				return err
			})
		})
	}
}

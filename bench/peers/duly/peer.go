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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/bench/peers/harness"
	"duly.dev/duly/dev"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/wire"
)

// books counts by task. A step's result is in the journal, in the row that ended it.
const books = `
WITH task AS (
	SELECT t.partition, t.number, t.state, count(j.seq) FILTER (WHERE j.step_status = 'done' AND j.result IS NOT NULL) AS results
	FROM tasks t LEFT JOIN journal j USING (partition, number) GROUP BY 1, 2, 3)
SELECT count(*), count(*) FILTER (WHERE state = 'processed' AND results >= $1::int), count(*) FILTER (WHERE results > $1) FROM task`

const (
	taskType   = "deliver"
	startLimit = time.Minute // until the node holds all its partitions
)

// own are the settings of this program alone.
type own struct {
	partitions int
	single     bool
}

func spec() harness.Spec {
	var set own
	return harness.Spec{
		System: "duly", Module: "duly.dev/duly",
		Workers: inFlight, Batch: 1, Submitters: 512, Books: func() string { return books },
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&set.partitions, "partitions", 4, "partitions; 4 is what one node of two processors is well served with")
			flags.BoolVar(&set.single, "single", false, "a message for each command, as an agent in any language would have it")
		},
		New: func(s harness.Settings) (harness.Peer, error) { return &peer{own: set, steps: s.Steps}, nil },
		Tuned: func(harness.Settings) map[string]any {
			return map[string]any{
				"partitions": set.partitions,
				"wire":       map[bool]string{true: "single", false: "batched"}[set.single],
				"server":     "embedded NATS, every write synced",
				"steps":      "each with an undo, served by an agent over NATS on loopback TCP",
			}
		},
	}
}

// inFlight is how many tasks suit it best: with more steps they are spread over more
// commits.
func inFlight(steps int) int {
	if steps == 1 {
		return 2000
	}
	return 8000
}

// peer is a whole Duly: server, node and agent.
type peer struct {
	own   own
	steps int

	system *dev.System
	nc     *nats.Conn
	client *duly.Client
	plan   *duly.Plan[harness.Order]

	stops []func() error // what Close undoes, the latest first
}

// Open starts everything on the empty database, or leaves nothing behind.
func (p *peer) Open(ctx context.Context, dsn string, ended harness.Ended) error {
	if err := p.open(ctx, dsn, ended); err != nil {
		return errors.Join(err, p.Close(ctx))
	}
	return nil
}

func (p *peer) open(ctx context.Context, dsn string, ended harness.Ended) error {
	node.TuneMemory(0) // as duly serve does
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	dir, err := os.MkdirTemp("", "duly-peer-")
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	p.stops = append(p.stops, func() error { return os.RemoveAll(dir) })
	p.system, err = dev.Start(ctx, dev.Options{Dir: dir, Store: dsn, Config: dev.Config("peer", p.own.partitions), Log: log})
	if err != nil {
		return err
	}
	p.stops = append(p.stops, p.system.Close)
	p.begin(ctx, p.system.Run)
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := p.system.AwaitOwned(starting); err != nil {
		return err
	}
	if p.nc, err = nats.Connect(p.system.NATSURL); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	p.stops = append(p.stops, func() error { p.nc.Close(); return nil })
	if p.client, err = duly.NewClient(p.nc); err != nil {
		return err
	}
	if err := p.serve(ctx, log); err != nil {
		return err
	}
	return p.listen(ctx, ended)
}

// begin runs f until Close.
func (p *peer) begin(ctx context.Context, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	p.stops = append(p.stops, func() error {
		cancel()
		return <-done
	})
}

// serve stores the plan and starts the agent of its steps.
func (p *peer) serve(ctx context.Context, log *slog.Logger) error {
	options := []duly.AgentOption{duly.Log(log)}
	if p.own.single {
		options = append(options, duly.SingleCommands())
	}
	agent, err := duly.NewAgent(p.nc, options...)
	if err != nil {
		return err
	}
	steps := make([]duly.StepOf[harness.Order], p.steps)
	for i := range steps {
		name := "step" + strconv.Itoa(i+1)
		step := duly.NewStep[harness.Order, harness.StepResult](name, "deliver."+name)
		err := step.Serve(agent, func(_ context.Context, c duly.Call[harness.Order]) (harness.StepResult, error) {
			harness.Ran()
			return harness.Step(c.Input, i+1), nil
		}, func(context.Context, duly.Undo[harness.Order, harness.StepResult]) error { return nil })
		if err != nil {
			return err
		}
		steps[i] = step
	}
	p.plan = duly.NewPlan(taskType, 1, steps...)
	if err := p.plan.Apply(ctx, p.client); err != nil {
		return err
	}
	p.begin(ctx, agent.Run)
	return nil
}

// event is what is read of a message of the event stream: one ending, or a pack.
type event struct {
	ID     string  `json:"id"`
	Error  string  `json:"error"`
	Events []event `json:"events"`
}

var errNotProcessed = errors.New("the task was not processed")

// listen hears of endings where any program would: from the event stream, which has
// stored them.
func (p *peer) listen(ctx context.Context, ended harness.Ended) error {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	consumer, err := js.OrderedConsumer(ctx, wire.Names{}.StreamEvents(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	processed := wire.Names{}.EventSubject(taskType, string(duly.Processed))
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		var pack event
		if err := json.Unmarshal(m.Data(), &pack); err != nil {
			ended(0, fmt.Errorf("event: %w", err)) // no task has this number: the run fails
			return
		}
		events := pack.Events
		if len(events) == 0 {
			events = []event{pack}
		}
		for _, e := range events {
			number, err := harness.Number(e.ID)
			if err == nil && m.Subject() != processed {
				err = fmt.Errorf("%w: %s: %s", errNotProcessed, m.Subject(), e.Error)
			}
			ended(number, err)
		}
	})
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	p.stops = append(p.stops, func() error {
		consuming.Stop()
		<-consuming.Closed()
		return nil
	})
	return nil
}

// Submit returns when the task is stored, synced to disk. Tasks come one by one, each
// from a caller of its own.
func (p *peer) Submit(ctx context.Context, tasks []harness.Task) error {
	for _, t := range tasks {
		if _, err := p.plan.Submit(ctx, p.client, t.Order.ID, t.Order); err != nil {
			return err
		}
	}
	return nil
}

// Close ends everything, the latest first.
func (p *peer) Close(context.Context) error {
	var errs []error
	for i := len(p.stops) - 1; i >= 0; i-- {
		errs = append(errs, p.stops[i]())
	}
	p.stops = nil
	return errors.Join(errs...)
}

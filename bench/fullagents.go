package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Full agents: more is asked of the agents than they can do, and every task has a deadline. What counts is how many are
// processed in time.
const (
	fullAgentsWorkers  = 20                     // of each agent
	fullAgentsService  = 200 * time.Millisecond // mean time of a call, exponential; undo takes as long
	fullAgentsRate     = 130                    // percent of what the agents can do
	fullAgentsDeadline = 4 * time.Second
	fullAgentsSeconds  = 10
	fullAgentsWarm     = 10 * time.Second // until the queue is as long as deadlines let it be
	fullAgentsRuns     = 5
	fullAgentsWindow   = 10 // tasks in flight at an agent, of each of the partitions: twice what it works on
	fullAgentsTimes    = 5  // a call takes at most so many times the mean
)

// fullAgentsSteps are the steps of a task, each at an agent of its own.
var fullAgentsSteps = []string{"a", "b", "c"}

// FullAgents is what came of one load.
type FullAgents struct {
	OfferedPerS float64                  `json:"offered_per_s"`
	Goodput     float64                  `json:"goodput_per_s"` // tasks processed by their deadlines
	Offered     int64                    `json:"offered"`
	Processed   int64                    `json:"processed"`
	Undone      int64                    `json:"undone"`
	Other       int64                    `json:"other"`
	Do          []int64                  `json:"do"` // calls by step, also of the tasks before
	Undo        []int64                  `json:"undo"`
	Calibration []operate.CalibrationBin `json:"calibration"`
}

// fullAgentsResult is the whole.
type fullAgentsResult struct {
	Date    string        `json:"date"`
	Command string        `json:"command"`
	Runs    []*FullAgents `json:"runs"`
	Goodput float64       `json:"goodput_per_s"` // the median
}

// fullAgents runs the load again and again, each time another.
func fullAgents(ctx context.Context, s *settings, command string, out io.Writer) error {
	res := &fullAgentsResult{Date: time.Now().UTC().Format(time.RFC3339), Command: command}
	var goodput []float64
	for seed := range orElse(s.pairs, fullAgentsRuns) {
		r, err := fullAgentsLoad(ctx, s, uint64(seed))
		if err != nil {
			return err
		}
		goodput = append(goodput, r.Goodput)
		res.Runs = append(res.Runs, r)
		fmt.Fprintf(os.Stderr, "full-agents: %.0f/s offered, %.1f/s processed in time (%d of %d; %d undone, %d other; do %v, undo %v)\n",
			r.OfferedPerS, r.Goodput, r.Processed, r.Offered, r.Undone, r.Other, r.Do, r.Undo)
	}
	res.Goodput = median(goodput)
	line, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if s.json != "" {
		if err := os.WriteFile(s.json, append(line, '\n'), 0o644); err != nil {
			return fmt.Errorf("result: %w", err)
		}
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}

// fullAgentsLoad runs one load on a system of its own.
func fullAgentsLoad(ctx context.Context, s *settings, seed uint64) (*FullAgents, error) {
	dir, err := os.MkdirTemp("", "duly-full-agents-")
	if err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	cfg := dev.Config("bench", s.partitions)
	cfg.AgentWindow, cfg.HTTPAddr = fullAgentsWindow, ""
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	system, err := dev.Start(ctx, dev.Options{Dir: dir, Store: s.store, Config: cfg, Log: log})
	if err != nil {
		return nil, err
	}
	stop := begin(ctx, system)
	r := &FullAgents{}
	err = owned(ctx, system)
	if err == nil {
		err = r.run(ctx, s, system, rand.New(rand.NewPCG(seed, 1)))
	}
	return r, errors.Join(err, stop(), system.Close())
}

// run serves the agents, offers the load and counts what became of it.
func (r *FullAgents) run(ctx context.Context, s *settings, system *dev.System, chance *rand.Rand) error {
	nc, err := nats.Connect(system.NATSURL, nats.Name("bench"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	client, err := duly.NewClient(nc)
	if err != nil {
		return err
	}
	agents, plans, calls, err := fullAgentsPlans(nc)
	if err != nil {
		return err
	}
	serving, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- agents.Run(serving) }()
	for _, p := range plans {
		if err = errors.Join(err, p.Apply(ctx, client)); err != nil {
			break
		}
	}
	if err == nil {
		err = r.offer(ctx, s, client, plans, chance)
	}
	if err == nil {
		err = r.count(ctx, system)
	}
	end()
	err = errors.Join(err, <-served)
	for i := range calls {
		r.Do, r.Undo = append(r.Do, calls[i].do.Load()), append(r.Undo, calls[i].undo.Load())
	}
	return err
}

// The two plans have the same steps: the first has the load before what is measured.
const fullAgentsWarmUp, fullAgentsMeasured = "full-agents-before", "full-agents"

// stepCalls counts the calls of a step that were worked on.
type stepCalls struct{ do, undo atomic.Int64 }

// fullAgentsPlans make the plans, and agents that serve them as slowly as agreed.
func fullAgentsPlans(nc *nats.Conn) (*duly.Agent, []*duly.Plan[int], []stepCalls, error) {
	agent, err := duly.NewAgent(nc)
	if err != nil {
		return nil, nil, nil, err
	}
	calls := make([]stepCalls, len(fullAgentsSteps))
	var steps []duly.StepOf[int]
	for i, name := range fullAgentsSteps {
		workers := make(chan struct{}, fullAgentsWorkers)
		work := func(ctx context.Context, count *atomic.Int64) error {
			select {
			case workers <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-workers }()
			count.Add(1)
			took := min(time.Duration(rand.ExpFloat64()*float64(fullAgentsService)), fullAgentsTimes*fullAgentsService)
			if !pause(ctx, took) {
				return ctx.Err()
			}
			return nil
		}
		step := duly.NewStep[int, int](name, "full-agents."+name, duly.CompleteBy(fullAgentsDeadline))
		err := step.Serve(agent, func(ctx context.Context, c duly.Call[int]) (int, error) { return c.Input, work(ctx, &calls[i].do) },
			func(ctx context.Context, _ duly.Undo[int, int]) error { return work(ctx, &calls[i].undo) })
		if err != nil {
			return nil, nil, nil, err
		}
		steps = append(steps, step)
	}
	var plans []*duly.Plan[int]
	for _, name := range []string{fullAgentsWarmUp, fullAgentsMeasured} {
		plans = append(plans, duly.NewPlan[int](name, 1, steps...).With(duly.TaskCompleteBy(fullAgentsDeadline), duly.Grace(100*time.Millisecond)))
	}
	return agent, plans, calls, nil
}

// offer submits at random intervals, and waits until all have come to their deadlines.
func (r *FullAgents) offer(ctx context.Context, s *settings, client *duly.Client, plans []*duly.Plan[int], chance *rand.Rand) error {
	capacity := fullAgentsWorkers / fullAgentsService.Seconds()
	r.OfferedPerS = float64(orElse(s.rate, int(capacity*fullAgentsRate/100)))
	measured := time.Duration(orElse(s.seconds, fullAgentsSeconds)) * time.Second
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	began, at := time.Now(), time.Duration(0)
	for i := 0; ; i++ {
		at += time.Duration(chance.ExpFloat64() / r.OfferedPerS * float64(time.Second))
		if at > fullAgentsWarm+measured {
			break
		}
		if !pause(ctx, time.Until(began.Add(at))) {
			return ctx.Err()
		}
		plan := plans[0]
		if at > fullAgentsWarm {
			plan = plans[1]
			r.Offered++
		}
		wg.Go(func() {
			if _, err := plan.Submit(ctx, client, fmt.Sprintf("o%d", i), i); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// count waits until all have ended, and counts them.
func (r *FullAgents) count(ctx context.Context, system *dev.System) error {
	for by := time.Now().Add(fullAgentsDeadline + time.Minute); ; {
		counts, err := system.Node.Counts(ctx)
		if err != nil {
			return err
		}
		r.Processed, r.Undone, r.Other = 0, 0, 0
		for _, c := range counts {
			switch {
			case c.Type != fullAgentsMeasured:
			case c.State == core.StateProcessed:
				r.Processed = c.Tasks
			case c.State == core.StateUndone:
				r.Undone = c.Tasks
			default:
				r.Other += c.Tasks
			}
		}
		if r.Processed+r.Undone >= r.Offered || time.Now().After(by) {
			break
		}
		if !pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
	}
	f, err := system.Node.Forecast(ctx)
	if err != nil {
		return err
	}
	r.Calibration = f.Calibration
	r.Goodput = float64(r.Processed) / (float64(r.Offered) / r.OfferedPerS)
	return nil
}

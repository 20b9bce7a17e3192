package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"duly.dev/duly"
)

// Sizes of the scenario diamond.
const (
	diamondRate    = 1000 // tasks a second whose processor time is measured
	diamondSeconds = 10
	diamondPairs   = 5
	diamondLow     = 20 // tasks a second whose latency is measured
	diamondCall    = 20 * time.Millisecond
)

// Both plans of the scenario have these five steps.
var diamondSteps = [5]string{"a", "b", "c", "d", "e"}

// diamondSide is what one of the two plans cost.
type diamondSide struct {
	Engine   []float64 `json:"engine"` // processor time in µs a task, by run
	Database []float64 `json:"database"`
	EndToEnd Quantiles `json:"end_to_end"` // ms at low load, where every call takes diamondCall
}

// diamondResult compares five calls of which three are side by side with a chain of five.
type diamondResult struct {
	Scenario string       `json:"scenario"`
	Store    string       `json:"store"`
	Date     string       `json:"date"`
	Machine  string       `json:"machine"`
	Command  string       `json:"command"`
	Rate     int          `json:"rate"`
	Chain    *diamondSide `json:"chain"`
	Diamond  *diamondSide `json:"diamond"`
	CPU      float64      `json:"cpu_change"` // in percent, of the medians of engine and database
	Latency  float64      `json:"latency_change"`
}

// diamondPlan is the chain or the diamond, which an agent serves. A call takes as long as takes says.
func diamondPlan(name string, branches bool, agent *duly.Agent, takes *atomic.Int64) (*duly.Plan[int], error) {
	var steps []duly.StepOf[int]
	var named []duly.Named
	for i, step := range diamondSteps {
		var after []duly.StepOption
		switch {
		case branches && i > 0 && i < 4:
			after = append(after, duly.After(named[0]))
		case branches && i == 4:
			after = append(after, duly.After(named[1:4]...))
		}
		s := duly.NewStep[int, int](step, "bench."+name+"-"+step, after...)
		err := s.ServeAsync(agent, func(_ context.Context, c duly.Call[int], done func(int, error)) {
			if d := time.Duration(takes.Load()); d > 0 {
				time.AfterFunc(d, func() { done(c.Input, nil) })
				return
			}
			done(c.Input, nil)
		}, func(_ context.Context, _ duly.Undo[int, int], done func(error)) { done(nil) })
		if err != nil {
			return nil, err
		}
		steps, named = append(steps, s), append(named, s)
	}
	return duly.NewPlan("bench-"+name, 1, steps...), nil
}

// diamond runs both plans alternately.
func diamond(ctx context.Context, s *settings, command string, out io.Writer) error {
	where, err := whereOf(s)
	if err != nil {
		return err
	}
	res := &diamondResult{Scenario: s.scenario, Store: s.store, Date: time.Now().UTC().Format(time.RFC3339), Machine: where, Command: command,
		Rate: orElse(s.rate, diamondRate), Chain: &diamondSide{}, Diamond: &diamondSide{}}
	err = bare(ctx, s, rigOptions{}, []string{"bench-chain", "bench-diamond"}, func(r *rig, d *desk) error {
		var takes atomic.Int64
		chain, err1 := diamondPlan("chain", false, d.agent, &takes)
		branches, err2 := diamondPlan("diamond", true, d.agent, &takes)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return d.serving(ctx, func() error {
			if err := errors.Join(chain.Apply(ctx, d.client), branches.Apply(ctx, d.client)); err != nil {
				return err
			}
			return res.run(ctx, s, r, d, &takes, map[*diamondSide]*duly.Plan[int]{res.Chain: chain, res.Diamond: branches})
		})
	})
	if err != nil {
		return err
	}
	return publishTable(s, res, out)
}

func (res *diamondResult) run(ctx context.Context, s *settings, r *rig, d *desk, takes *atomic.Int64, plans map[*diamondSide]*duly.Plan[int]) error {
	seconds := orElse(s.seconds, diamondSeconds)
	load := func(side *diamondSide, prefix string, n, rate int) ([]time.Duration, error) {
		return d.load(ctx, n, rate, prefix, func(ctx context.Context, id string) error {
			_, err := plans[side].Submit(ctx, d.client, id, 1)
			return err
		})
	}
	sides := []*diamondSide{res.Chain, res.Diamond}
	for i, side := range sides { // heaps, pools and plans are warm after it
		if _, err := load(side, fmt.Sprintf("warm-%d", i), 3*res.Rate, res.Rate); err != nil {
			return err
		}
	}
	for pair := range orElse(s.pairs, diamondPairs) {
		for i := range sides {
			k := (pair + i) % 2
			side, n := sides[k], seconds*res.Rate
			engine, database, err := r.spent()
			if err == nil {
				_, err = load(side, fmt.Sprintf("load-%d-%d", pair, k), n, res.Rate)
			}
			if err != nil {
				return err
			}
			engineAfter, databaseAfter, err := r.spent()
			if err != nil {
				return err
			}
			side.Engine = append(side.Engine, 1e6*(engineAfter-engine)/float64(n))
			side.Database = append(side.Database, 1e6*(databaseAfter-database)/float64(n))
			fmt.Fprintf(os.Stderr, "diamond: pair %d, %s: engine %.1f, database %.1f µs a task\n", pair+1, plans[side].Name(), side.Engine[pair], side.Database[pair])
		}
	}
	takes.Store(int64(diamondCall))
	for i, side := range sides {
		took, err := load(side, fmt.Sprintf("low-%d", i), seconds*diamondLow, diamondLow)
		if err != nil {
			return err
		}
		var all []float64
		for _, t := range took {
			all = append(all, ms(t))
		}
		side.EndToEnd = exactQuantiles(all)
	}
	res.CPU = percent(res.Chain.cpu(), res.Diamond.cpu())
	res.Latency = percent(res.Chain.EndToEnd.P50, res.Diamond.EndToEnd.P50)
	return nil
}

func (s *diamondSide) cpu() float64 { return median(s.Engine) + median(s.Database) }

func (res *diamondResult) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, medians of %d runs at %d/s; end to end at %d/s with calls of %v\n", storeWord(res.Store), len(res.Chain.Engine), res.Rate, diamondLow, diamondCall)
	fmt.Fprintln(w, "five calls\tCPU µs a task: engine\tdatabase\te2e p50 ms\te2e p99 ms")
	for _, line := range []struct {
		name string
		side *diamondSide
	}{{"chain", res.Chain}, {"diamond", res.Diamond}} {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.1f\n", line.name, median(line.side.Engine), median(line.side.Database), line.side.EndToEnd.P50, line.side.EndToEnd.P99)
	}
	fmt.Fprintf(w, "change in %%\t%+.1f engine and database\t\t%+.1f\t\n", res.CPU, res.Latency)
	return w.Flush()
}

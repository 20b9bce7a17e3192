package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// Sizes of the scenario waits.
const (
	waitsParked  = 1_000_000
	waitsRate    = 2000 // that become due a second
	waitsSeconds = 10
	waitsFor     = 24 * time.Hour // every wait; those that become due have begun so long ago
)

// waitsResult is what parked waits cost, and how late those that are due go on.
type waitsResult struct {
	Scenario string    `json:"scenario"`
	Store    string    `json:"store"`
	Date     string    `json:"date"`
	Machine  string    `json:"machine"`
	Command  string    `json:"command"`
	Parked   int       `json:"parked"`
	Heap     [2]Figure `json:"heap"` // of the engine in MiB, garbage collected: without and with the waits
	PSS      [2]Figure `json:"pss"`
	Due      int       `json:"due"`
	Rate     int       `json:"rate"`
	Late     Quantiles `json:"late"` // ms from the instant to the command after the wait, at its agent
}

// Figure is one number of a table.
type Figure float64

// waits parks many waits, measures the memory of the engine beside them, and then lets some become due.
func waits(ctx context.Context, s *settings, command string, out io.Writer) error {
	where, err := whereOf(s)
	if err != nil {
		return err
	}
	res := &waitsResult{Scenario: s.scenario, Store: s.store, Date: time.Now().UTC().Format(time.RFC3339), Machine: where, Command: command,
		Parked: orElse(s.preload, waitsParked), Rate: orElse(s.rate, waitsRate)}
	res.Due = res.Rate * orElse(s.seconds, waitsSeconds)
	if err := bare(ctx, s, rigOptions{}, nil, func(r *rig, d *desk) error {
		defer d.nc.Close()
		if !pause(ctx, idleSettle) {
			return ctx.Err()
		}
		return res.memory(r, 0)
	}); err != nil {
		return err
	}
	var from time.Time // the first is due
	plan := duly.NewPlan("bench-wait", 1, duly.NewWait[int64]("wait", duly.For(waitsFor)), duly.NewCheck[int64, int64]("go-on", "bench.go-on")).
		With(duly.TaskCompleteBy(30 * waitsFor))
	spec, err := plan.Spec()
	if err != nil {
		return err
	}
	prepare := func(ctx context.Context, r *rig) error {
		var err error
		from, err = r.parkWaits(ctx, &spec, res.Parked, res.Due, res.Rate)
		return err
	}
	if err := bare(ctx, s, rigOptions{Prepare: prepare}, nil, func(r *rig, d *desk) error { return res.run(ctx, r, d, from) }); err != nil {
		return err
	}
	return publishTable(s, res, out)
}

func (res *waitsResult) memory(r *rig, i int) error {
	heap, pss, err := r.memory()
	res.Heap[i], res.PSS[i] = Figure(heap), Figure(pss)
	return err
}

// parkWaits puts waits into the store: those that stay parked, and those that become due one after the other from the
// instant that it returns.
func (r *rig) parkWaits(ctx context.Context, plan *core.Plan, parked, due, rate int) (from time.Time, err error) {
	if err := node.Migrate(ctx, r.database); err != nil {
		return from, err
	}
	store, err := dialects.Open(ctx, r.database, schema.Options{MaxConns: 2})
	if err != nil {
		return from, err
	}
	y := &yard{store: store}
	err = errors.Join(y.open(ctx, r.partitions), store.PutPlan(ctx, *plan))
	began := time.Now()
	for i := 0; i < parked && err == nil; i++ {
		err = y.wait(ctx, plan, "parked-"+strconv.Itoa(i), began.Add(waitsFor))
	}
	fmt.Fprintf(os.Stderr, "waits: %d parked in %v\n", parked, time.Since(began).Round(time.Second))
	// Far enough away to be inserted and taken over before, and for the memory to be looked at.
	from = time.Now().Add(time.Duration(due/2000)*time.Second + 3*idleSettle)
	for i := 0; i < due && err == nil; i++ {
		err = y.wait(ctx, plan, "due-"+strconv.Itoa(i), from.Add(time.Duration(i)*time.Second/time.Duration(rate)))
	}
	if err == nil && len(y.batch.Writes) > 0 {
		err = y.commit(ctx)
	}
	if err == nil {
		err = y.close(ctx)
	}
	return from, errors.Join(err, store.Close())
}

// wait makes a task that waits until an instant, which is its input.
func (y *yard) wait(ctx context.Context, plan *core.Plan, id string, due time.Time) error {
	input := []byte(strconv.FormatInt(due.UnixMicro(), 10))
	at := core.InstantOf(due.Add(-waitsFor))
	state := &y.states[wire.PartitionOf(id, len(y.states))]
	task := &core.Task{Partition: state.Partition, Number: state.NextNumber, ID: id, Type: plan.Name, Input: input, InputHash: core.HashInput(plan.Name, input), CreatedAt: at}
	state.NextNumber++
	var out core.Outcome
	core.Birth(plan, task, &core.Event{At: at, Actor: "bench", Node: "bench"}, &out)
	if task.State != core.StatePending {
		return fmt.Errorf("task %s is %s, want %s", id, task.State, core.StatePending)
	}
	y.batch.Writes = append(y.batch.Writes, core.TaskWrite{Task: task, Birth: true, Records: append([]core.Record(nil), out.Records...)})
	if len(y.batch.Writes) < parkBatch {
		return nil
	}
	return y.commit(ctx)
}

// run measures the memory beside the waits, and how late those that are due go on.
func (res *waitsResult) run(ctx context.Context, r *rig, d *desk, from time.Time) error {
	var mu sync.Mutex
	var late []float64
	step := duly.NewCheck[int64, int64]("go-on", "bench.go-on")
	err := step.Serve(d.agent, func(_ context.Context, c duly.Call[int64]) (int64, error) {
		after := time.Since(time.UnixMicro(c.Input))
		mu.Lock()
		defer mu.Unlock()
		late = append(late, ms(after))
		return c.Input, nil
	})
	if err != nil {
		return err
	}
	got := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(late)
	}
	return d.serving(ctx, func() error {
		if !pause(ctx, idleSettle) {
			return ctx.Err()
		}
		if err := res.memory(r, 1); err != nil {
			return err
		}
		if time.Now().After(from) {
			return fmt.Errorf("the first were due before they were all there, %v ago", time.Since(from).Round(time.Second))
		}
		by := from.Add(time.Duration(res.Due/res.Rate)*time.Second + deskWithin)
		for got() < res.Due {
			if time.Now().After(by) {
				return fmt.Errorf("%d of %d waits that were due went on", got(), res.Due)
			}
			if !pause(ctx, 100*time.Millisecond) {
				return ctx.Err()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		res.Late = exactQuantiles(late)
		return nil
	})
}

// exactQuantiles are those of some milliseconds, which it sorts.
func exactQuantiles(all []float64) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	slices.Sort(all)
	at := func(share float64) float64 { return all[min(int(share*float64(len(all))), len(all)-1)] }
	return Quantiles{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: all[len(all)-1]}
}

func (res *waitsResult) table(out io.Writer) error {
	_, err := fmt.Fprintf(out, `%s, %d parked waits
engine's heap, MiB        %8.1f without, %.1f with
engine's memory (PSS), MiB %7.1f without, %.1f with
%d due at %d/s: p50 %.0f, p99 %.0f, max %.0f ms from the instant to the next command at its agent
`, storeWord(res.Store), res.Parked, res.Heap[0], res.Heap[1], res.PSS[0], res.PSS[1], res.Due, res.Rate, res.Late.P50, res.Late.P99, res.Late.Max)
	return err
}

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
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// Sizes of the scenario each.
const (
	eachChildren = 10_000
	eachParallel = 1000
	eachParents  = 3
	eachWatch    = 50 * time.Millisecond
)

// eachRun is what one parent took.
type eachRun struct {
	Children  int     `json:"children"`
	Seconds   float64 `json:"seconds"` // from the parent's submission to its end
	ChildrenS float64 `json:"children_per_s"`
	CPU       float64 `json:"cpu"`    // µs of engine and database a child
	HeapAt    Figure  `json:"heap"`   // of the engine in MiB, garbage collected, when half of the children had begun; of a parent of its own
	Before    Figure  `json:"before"` // the same before that parent
	Rows      int     `json:"rows"`   // of the parent's journal
	RowsPer1K float64 `json:"rows_per_1000"`
}

// eachResult is that of parents of which the first has a tenth of the children.
type eachResult struct {
	Scenario string     `json:"scenario"`
	Store    string     `json:"store"`
	Date     string     `json:"date"`
	Machine  string     `json:"machine"`
	Command  string     `json:"command"`
	Parallel int        `json:"parallel"`
	Runs     []*eachRun `json:"runs"`
}

// fanOut runs parents one after the other, with a child of one call for each element.
func fanOut(ctx context.Context, s *settings, command string, out io.Writer) error {
	where, err := whereOf(s)
	if err != nil {
		return err
	}
	most := orElse(s.preload, eachChildren)
	res := &eachResult{Scenario: s.scenario, Store: s.store, Date: time.Now().UTC().Format(time.RFC3339), Machine: where, Command: command, Parallel: eachParallel}
	err = bare(ctx, s, rigOptions{}, []string{"bench-parent"}, func(r *rig, d *desk) error {
		var calls atomic.Int64
		row := duly.NewCheck[int, int]("row", "bench.row")
		err := row.ServeAsync(d.agent, func(_ context.Context, c duly.Call[int], done func(int, error)) {
			calls.Add(1)
			done(c.Input, nil)
		})
		if err != nil {
			return err
		}
		child := duly.NewPlan("bench-child", 1, row).With(duly.TaskCompleteBy(deskWithin))
		parent := duly.NewPlan("bench-parent", 1, duly.NewEach[[]int]("rows", child, duly.Elements("input", most), duly.Parallel(eachParallel))).
			With(duly.TaskCompleteBy(deskWithin))
		return d.serving(ctx, func() error {
			if err := errors.Join(child.Apply(ctx, d.client), parent.Apply(ctx, d.client)); err != nil {
				return err
			}
			sizes := []int{max(1, most/10)}
			for range orElse(s.pairs, eachParents) {
				sizes = append(sizes, most)
			}
			for i, n := range sizes {
				run, err := runParent(ctx, r, d, parent, &calls, n, i)
				if err != nil {
					return fmt.Errorf("parent of %d children: %w", n, err)
				}
				fmt.Fprintf(os.Stderr, "each: %d children in %.2f s, %d rows of the parent's journal\n", n, run.Seconds, run.Rows)
				res.Runs = append(res.Runs, run)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return publishTable(s, res, out)
}

// runParent times one parent, and looks at the memory in the middle of another.
func runParent(ctx context.Context, r *rig, d *desk, plan *duly.Plan[[]int], calls *atomic.Int64, n, number int) (*eachRun, error) {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	run := &eachRun{Children: n}
	submit := func(id string) error {
		calls.Store(0)
		_, err := plan.Submit(ctx, d.client, id, list)
		return err
	}
	ended := func() error { return d.await(ctx, 2*number+2) }
	heap, _, err := r.memory()
	if err != nil {
		return nil, err
	}
	run.Before = Figure(heap)
	if err := submit(fmt.Sprintf("looked-at-%d", number)); err != nil {
		return nil, err
	}
	for by := time.Now().Add(deskWithin); calls.Load() < int64(n/2); {
		if time.Now().After(by) || !pause(ctx, eachWatch) {
			return nil, fmt.Errorf("%d of %d children began", calls.Load(), n)
		}
	}
	if heap, _, err = r.memory(); err != nil {
		return nil, err
	}
	run.HeapAt = Figure(heap)
	if err := d.await(ctx, 2*number+1); err != nil {
		return nil, err
	}
	engine, database, err := r.spent()
	if err != nil {
		return nil, err
	}
	began, id := time.Now(), fmt.Sprintf("timed-%d", number)
	if err := errors.Join(submit(id), ended()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	run.Seconds = d.ended[id].Sub(began).Seconds()
	d.mu.Unlock()
	if got := calls.Load(); got < int64(n) {
		return nil, fmt.Errorf("%d of %d children were called", got, n)
	}
	engineAfter, databaseAfter, err := r.spent()
	if err != nil {
		return nil, err
	}
	run.ChildrenS = float64(n) / run.Seconds
	run.CPU = 1e6 * (engineAfter - engine + databaseAfter - database) / float64(n)
	run.Rows, err = r.rowsOf(ctx, id)
	run.RowsPer1K = float64(run.Rows) * 1000 / float64(n)
	return run, err
}

// rowsOf counts the rows of a task's journal.
func (r *rig) rowsOf(ctx context.Context, id string) (rows int, err error) {
	store, err := dialects.Open(ctx, r.database, schema.Options{MaxConns: 2})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	partition := wire.PartitionOf(id, r.partitions)
	found, err := store.LoadIDs(ctx, core.AsOf{Partition: partition}, []string{id})
	if err != nil {
		return 0, err
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("task %s: not in the store", id)
	}
	journal, err := store.Journal(ctx, partition, found[0].Row.Number)
	return len(journal), err
}

func (res *eachResult) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, at most %d children at a time\n", storeWord(res.Store), res.Parallel)
	fmt.Fprintln(w, "children\tchildren/s\tCPU µs a child: engine and database\tengine's heap MiB: before\tin the middle\tparent's journal rows\ta 1,000 children")
	for _, r := range res.Runs {
		fmt.Fprintf(w, "%d\t%.0f\t%.1f\t%.1f\t%.1f\t%d\t%.1f\n", r.Children, r.ChildrenS, r.CPU, r.Before, r.HeapAt, r.Rows, r.RowsPer1K)
	}
	return w.Flush()
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// slowProbe is what a probe may take without a word about it.
const slowProbe = 3 * time.Second

// clockFormat is how times of a day are written.
const clockFormat = "15:04:05.000"

// tellSlow writes down how a slow probe spent its time.
func (w *world) tellSlow(ctx context.Context, began, answered time.Time, v *core.View) {
	w.tellTask(ctx, "slow-probes.txt", v, fmt.Sprintf("handed in %s, accepted %s", began.UTC().Format(clockFormat), answered.UTC().Format(clockFormat)))
}

// tellExample writes down what became of a task that broke a promise.
func (w *world) tellExample(ctx context.Context, id, why string) {
	v, err := w.view(ctx, wire.PartitionOf(id, partitions), id)
	if err != nil {
		v.ID = id
	}
	w.tellTask(ctx, "examples.txt", &v, why)
}

// tellTask writes the journal of a task to a file.
func (w *world) tellTask(ctx context.Context, file string, v *core.View, what string) {
	f, err := os.OpenFile(filepath.Join(w.dir, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return // it is only to look at
	}
	defer f.Close()
	fmt.Fprintf(f, "%s partition %d number %d %s: %s\n", v.ID, v.Partition, v.Number, v.State, what)
	store, err := w.store()
	if err != nil {
		return
	}
	rows, err := store.Journal(ctx, v.Partition, v.Number)
	if err != nil {
		return
	}
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(f, "  %d %s %-10s %s round %d step %d %s attempt %d code %d %q next %d due %s\n", r.Seq, r.At.Time().UTC().Format(clockFormat), r.Kind, r.Actor,
			r.Round, r.Step, r.Reason, r.Attempt, r.Code, r.Error, r.Next, r.Due.Time().UTC().Format(clockFormat))
	}
}

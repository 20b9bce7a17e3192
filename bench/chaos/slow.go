package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"duly.dev/duly/internal/core"
)

// slowProbe is what a probe may take without a word about it.
const slowProbe = 3 * time.Second

// tellSlow writes down how a slow probe spent its time.
func (w *world) tellSlow(ctx context.Context, began, answered time.Time, v *core.View) {
	f, err := os.OpenFile(filepath.Join(w.dir, "slow-probes.txt"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return // it is only to look at
	}
	defer f.Close()
	const clock = "15:04:05.000"
	fmt.Fprintf(f, "%s partition %d %s: handed in %s, accepted %s\n", v.ID, v.Partition, v.State, began.UTC().Format(clock), answered.UTC().Format(clock))
	rows, err := w.store.Journal(ctx, v.Partition, v.Number)
	if err != nil {
		return
	}
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(f, "  %s %-10s %s step %d %s attempt %d code %d %q next %d due %s\n", r.At.Time().UTC().Format(clock), r.Kind, r.Actor,
			r.Step, r.Reason, r.Attempt, r.Code, r.Error, r.Next, r.Due.Time().UTC().Format(clock))
	}
}

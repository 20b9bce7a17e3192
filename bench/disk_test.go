package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDiskProbeRunsUntilItsEnd(t *testing.T) {
	dir := t.TempDir()
	p, err := startDiskProbe(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	if len(p.syncs) == 0 || p.syncs[0].took <= 0 {
		t.Errorf("syncs = %v: want one at least, and what it took", p.syncs)
	}
	if info, err := os.Stat(filepath.Join(dir, "disk")); err != nil || info.Size() < diskBlock {
		t.Errorf("the file: %v, %v: want a block in it", info, err)
	}
}

func TestDiskProbeFails(t *testing.T) {
	if _, err := startDiskProbe(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error where there is no folder")
	}
	f, err := os.Open(os.DevNull) // cannot be written to
	if err != nil {
		t.Fatal(err)
	}
	p := &diskProbe{file: f}
	_, p.stop = context.WithCancel(t.Context())
	p.wg.Go(func() { p.err = p.run(t.Context()) })
	if err := p.end(); err == nil {
		t.Error("no error from a file that takes nothing")
	}
}

func TestStallsAreReportedInTheirSeconds(t *testing.T) {
	const began = int64(100e9)
	p := &diskProbe{syncs: []diskSync{
		{began - 1, time.Minute}, // before the load
		{began, time.Millisecond},
		{began + 5e8, 49 * time.Millisecond},
		{began + 19e8, 1200 * time.Millisecond}, // through a whole second
		{began + 4e9, time.Minute},              // after it
	}}
	res := &Result{Timeline: make([]Point, 4)}
	p.report(res, began, began+4e9)
	if d := res.Disk; d.Stalls != 1 || d.StalledMS != 1200 || d.Sync.Max < 1199 || d.Sync.Max > 1202 || d.Sync.P50 > 50 {
		t.Errorf("disk = %+v: want the one stall of 1,200 ms of three syncs", *d)
	}
	for second, want := range []float64{49, 1200, 1200, 1200} {
		if got := res.Timeline[second].DiskMS; got != want {
			t.Errorf("second %d: %v ms, want %v", second, got, want)
		}
	}
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheDiskIsAskedUntilTheEnd(t *testing.T) {
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

func TestADiskThatFailsEndsTheRun(t *testing.T) {
	if _, err := startDiskProbe(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error where there is no folder")
	}
	f, err := os.Open(os.DevNull) // cannot be written to
	if err != nil {
		t.Fatal(err)
	}
	p := &diskProbe{file: f}
	_, p.stop = context.WithCancel(t.Context())
	p.wg.Go(func() { p.err = askDisk(t.Context(), f, func(diskSync) bool { return true }) })
	if err := p.end(); err == nil {
		t.Error("no error from a file that takes nothing")
	}
}

func TestStallsAreToldInTheirSeconds(t *testing.T) {
	const began = int64(100e9)
	p := &diskProbe{syncs: []diskSync{
		{began - 1, time.Minute}, // before the load
		{began, time.Millisecond},
		{began + 5e8, 49 * time.Millisecond},
		{began + 19e8, 1200 * time.Millisecond}, // through a whole second
		{began + 4e9, time.Minute},              // after it
	}}
	res := &Result{Timeline: make([]Point, 4)}
	p.tell(res, began, began+4e9)
	if d := res.Disk; d.Stalls != 1 || d.StalledMS != 1200 || d.Sync.Max < 1199 || d.Sync.Max > 1202 || d.Sync.P50 > 50 {
		t.Errorf("disk = %+v: want the one stall of 1,200 ms of three syncs", *d)
	}
	for second, want := range []float64{49, 1200, 1200, 1200} {
		if got := res.Timeline[second].DiskMS; got != want {
			t.Errorf("second %d: %v ms, want %v", second, got, want)
		}
	}
}

func TestALoadBeginsOnAQuietDisk(t *testing.T) {
	every := func(took func(n int) time.Duration) (seconds float64) {
		var q quiet
		for n := 0; ; n++ {
			at := int64(1e9) + int64(n)*int64(diskEvery)
			if q.enough(diskSync{at, took(n)}) {
				return float64(at-1e9) / 1e9
			}
		}
	}
	for name, c := range map[string]struct {
		took func(n int) time.Duration
		want float64
	}{
		"quiet":           {func(int) time.Duration { return time.Millisecond }, 20},
		"busy for 20 s":   {func(n int) time.Duration { return time.Duration(1+max(0, 400-n)) * time.Millisecond }, 39.55},
		"one late answer": {func(n int) time.Duration { return time.Duration(1+30*((n/50)%2)*(1-min(1, n/100))) * time.Millisecond }, 25},
		"never":           {func(int) time.Duration { return 11 * time.Millisecond }, 180},
	} {
		if got := every(c.took); got < c.want-0.1 || got > c.want+0.1 {
			t.Errorf("%s: a load begins after %v s, want %v", name, got, c.want)
		}
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// How often a block is synced, its size, and from when on a sync counts as a stall.
const (
	diskEvery  = 50 * time.Millisecond
	diskBlock  = 4096
	diskBlocks = 16 // of the file, written in turn
	diskStall  = 50 * time.Millisecond
)

// diskProbe writes a block and syncs it, again and again, beside a run and on the
// disk of its stores: how long a commit would take if the disk were all it waits for.
// Twenty syncs a second add little to a run's hundreds. A stall is measured nearly
// whole, because the sync that it delays lasts as long.
type diskProbe struct {
	file  *os.File
	wg    sync.WaitGroup
	stop  context.CancelFunc
	err   error
	syncs []diskSync
}

// diskSync is one sync.
type diskSync struct {
	at   int64 // Unix nanoseconds
	took time.Duration
}

// startDiskProbe begins to write to the disk that holds dir.
func startDiskProbe(ctx context.Context, dir string) (*diskProbe, error) {
	f, err := os.OpenFile(filepath.Join(dir, "disk"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("disk probe: %w", err)
	}
	p := &diskProbe{file: f}
	ctx, p.stop = context.WithCancel(ctx)
	p.wg.Go(func() {
		p.err = p.run(ctx)
	})
	return p, nil
}

// run notes one sync after the other until ctx ends.
func (p *diskProbe) run(ctx context.Context) error {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	block := make([]byte, diskBlock)
	for n := 0; ; n++ {
		block[0] = byte(n)
		from := time.Now()
		if _, err := p.file.WriteAt(block, int64(n%diskBlocks*diskBlock)); err != nil {
			return fmt.Errorf("disk probe: write: %w", err)
		}
		if err := syscall.Fdatasync(int(p.file.Fd())); err != nil {
			return fmt.Errorf("disk probe: sync: %w", err)
		}
		p.syncs = append(p.syncs, diskSync{from.UnixNano(), time.Since(from)})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// end stops the probe; its syncs are then complete.
func (p *diskProbe) end() error {
	p.stop()
	p.wg.Wait()
	if err := p.file.Close(); p.err == nil && err != nil {
		return fmt.Errorf("disk probe: %w", err)
	}
	return p.err
}

// report puts the syncs that began between two times into a result, and the longest
// under way in each second from the first of them on into its timeline. The probe
// has ended.
func (p *diskProbe) report(res *Result, from, to int64) {
	took, disk := newHistogram(), Disk{}
	for _, s := range p.syncs {
		if s.at < from || s.at >= to {
			continue
		}
		record(took, int64(s.took))
		if s.took >= diskStall {
			disk.Stalls++
			disk.StalledMS += ms(s.took)
		}
		for at := (s.at - from) / 1e9; at <= (s.at+int64(s.took)-from)/1e9 && at < int64(len(res.Timeline)); at++ {
			res.Timeline[at].DiskMS = max(res.Timeline[at].DiskMS, ms(s.took))
		}
	}
	disk.Sync = quantilesOf(took)
	res.Disk = &disk
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

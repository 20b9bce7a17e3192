package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// How often the disk is asked, for how much, and from when on it is said to stall.
const (
	diskEvery  = 50 * time.Millisecond
	diskBlock  = 4096
	diskBlocks = 16 // of the file, written in turn
	diskStall  = 50 * time.Millisecond
)

// A load begins when the disk has answered within quietSync for quietFor, or after
// quietMost: what the preparation wrote, 8 to 24 GB, is on its way for a while after it
// has been synced, at least where the disk is a host's.
const (
	quietSync = 10 * time.Millisecond
	quietFor  = 20 * time.Second
	quietMost = 3 * time.Minute
)

// diskProbe writes a block and syncs it, again and again, beside a run and on the
// disk of its stores: what a commit would wait for the disk if it had nothing else
// to wait for. Twenty syncs a second are nothing beside a run's hundreds, and show a
// stall nearly whole, because the one that it hits waits it out.
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

// startDiskProbe begins to ask the disk that holds dir.
func startDiskProbe(ctx context.Context, dir string) (*diskProbe, error) {
	f, err := diskFile(dir)
	if err != nil {
		return nil, err
	}
	p := &diskProbe{file: f}
	ctx, p.stop = context.WithCancel(ctx)
	p.wg.Go(func() {
		p.err = askDisk(ctx, f, func(s diskSync) bool {
			p.syncs = append(p.syncs, s)
			return true
		})
	})
	return p, nil
}

func diskFile(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "disk"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("file to ask the disk with: %w", err)
	}
	return f, nil
}

// askDisk tells of one sync after the other, until it is told to stop or ctx ends.
func askDisk(ctx context.Context, f *os.File, tell func(diskSync) bool) error {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	block := make([]byte, diskBlock)
	for n := 0; ; n++ {
		block[0] = byte(n)
		from := time.Now()
		if _, err := f.WriteAt(block, int64(n%diskBlocks*diskBlock)); err != nil {
			return fmt.Errorf("ask the disk: %w", err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return fmt.Errorf("sync the disk: %w", err)
		}
		if !tell(diskSync{from.UnixNano(), time.Since(from)}) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// waitForDisk waits until the disk that holds dir is quiet.
func waitForDisk(ctx context.Context, dir string) error {
	f, err := diskFile(dir)
	if err != nil {
		return err
	}
	var since quiet
	return errors.Join(askDisk(ctx, f, func(s diskSync) bool { return !since.enough(s) }), f.Close())
}

// quiet is since when a disk has been asked, and since when it has been quiet, in
// Unix nanoseconds; 0: not yet.
type quiet struct{ asked, quiet int64 }

// enough takes note of a sync and reports whether a load may begin.
func (q *quiet) enough(s diskSync) bool {
	if q.asked == 0 {
		q.asked = s.at
	}
	if s.took > quietSync {
		q.quiet = 0
	} else if q.quiet == 0 {
		q.quiet = s.at
	}
	end := s.at + int64(s.took)
	return q.quiet != 0 && end-q.quiet >= int64(quietFor) || end-q.asked >= int64(quietMost)
}

// end stops asking.
func (p *diskProbe) end() error {
	p.stop()
	p.wg.Wait()
	if err := p.file.Close(); p.err == nil && err != nil {
		return fmt.Errorf("file to ask the disk with: %w", err)
	}
	return p.err
}

// tell puts the syncs that began between two times into a result, and the longest
// under way in each second from the first of them on into its timeline. The probe
// has ended.
func (p *diskProbe) tell(res *Result, from, to int64) {
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

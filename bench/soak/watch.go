package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"duly.dev/duly"
	"duly.dev/duly/bench/internal/procfs"
)

// watch samples the parts while a load runs.
type watch struct {
	every   time.Duration
	parts   []*part
	began   time.Time
	samples []sample
}

// load is what was submitted.
type load struct{ accepted, refused atomic.Int64 }

// submitters share the rate.
const submitters = 16

// under keeps the system under load until ctx ends, and samples meanwhile.
func (w *watch) under(ctx context.Context, url string, rate int) (*load, error) {
	nc, err := nats.Connect(url, nats.Name("soak-load"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer nc.Close()
	client, err := duly.NewClient(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &load{}
	var wg sync.WaitGroup
	for range submitters {
		wg.Go(func() { l.submit(ctx, client, time.Second*submitters/time.Duration(rate)) })
	}
	w.began = time.Now()
	err = w.sample(ctx, l)
	cancel()
	wg.Wait()
	return l, err
}

// submit hands one task in every so often.
func (l *load) submit(ctx context.Context, client *duly.Client, gap time.Duration) {
	tick := time.NewTicker(gap)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := flow.Submit(ctx, client, nuid.Next(), order{n})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.refused.Add(1)
		default:
			l.accepted.Add(1)
		}
	}
}

// sample looks at every part until ctx ends, and prints a line each time.
func (w *watch) sample(ctx context.Context, l *load) error {
	fmt.Println("second  submitted  part     pss MiB  files  goroutines")
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, p := range w.parts {
			s, err := p.sample()
			if err != nil {
				return err
			}
			w.samples = append(w.samples, s)
			fmt.Printf("%6.0f  %9d  %-7s  %7.1f  %5.0f  %10.0f\n", time.Since(w.began).Seconds(), l.accepted.Load(), s.Part, s.PSS, s.Files, s.Goroutines)
		}
	}
}

func (p *part) sample() (sample, error) {
	answer, err := p.ask("goroutines")
	if err != nil {
		return sample{}, err
	}
	n, err := strconv.ParseFloat(answer, 64)
	if err != nil {
		return sample{}, fmt.Errorf("%s: goroutines: %w", p.name, err)
	}
	s, err := held(p.cmd.Process.Pid, n)
	s.Part = p.name
	return s, err
}

// held reads what a process holds.
func held(pid int, goroutines float64) (sample, error) {
	files, err1 := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	pss, err2 := procfs.PSS(pid)
	if err := errors.Join(err1, err2); err != nil {
		return sample{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return sample{PSS: pss, Files: float64(len(files)), Goroutines: goroutines}, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// The stores of a round.
const (
	storePostgres = "postgres"
	storeSQLite   = "sqlite"
)

// topology is what a stage runs on; a set of them says where a fault fits.
type topology uint8

const (
	single  topology = 1 << iota // every role a process, one NATS server, PostgreSQL
	cluster                      // the same on three NATS servers that are one
	devOnly                      // `duly dev` on SQLite: all roles and the NATS server in one process
)

// stage is a part of a round with a system of its own, and books of its own.
type stage struct {
	name     string
	topology topology
	share    float64 // of the round's time
	work     string  // workload; empty: deliveries alone
}

func stagesOf(store string) []stage {
	if store == storeSQLite {
		return []stage{{name: "dev", topology: devOnly, share: 1}}
	}
	return []stage{{name: "single", topology: single, share: 0.8}, {name: "cluster", topology: cluster, share: 0.2}}
}

// rate is what a stage gets of the round's: three servers write everything thrice.
func (s *stage) rate(whole int) int {
	if s.topology == cluster {
		return max(1, whole/2)
	}
	return whole
}

// drainMax is how long the system may make no progress at the end until what is
// unfinished counts as lost.
const drainMax = 90 * time.Second

// runStage builds a system, lets the faults loose, and closes the books.
func runStage(ctx context.Context, s *settings, st *stage, p *programs, dir string, r *report, out io.Writer) (err error) {
	kinds := fitting(st.topology, s.only)
	if len(kinds) == 0 {
		return nil
	}
	dir = filepath.Join(dir, st.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	w := &world{dir: dir, stage: st, programs: p, out: out, rate: st.rate(s.rate), over: newOver(s.over), seed: s.seed, logs: newLogs(p.older), mended: &r.Mended}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "stage %s: %s\n", st.name, w.disks())
	w.load.begin(ctx, w.rate)
	if w.work != nil {
		w.work.begin(ctx, w.load.clients[0])
	}
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.watchBacklog(watching) })
	defer wg.Wait()
	defer stop()
	return w.torment(ctx, s, r, kinds)
}

// torment lets the faults loose, ends the load and closes the books.
func (w *world) torment(ctx context.Context, s *settings, r *report, kinds []*kind) error {
	if w.over != nil {
		if err := w.measure(ctx); err != nil {
			return err
		}
	}
	began, st, out := time.Now(), w.stage, w.out
	if err := w.settle(ctx, recoverMax); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	length := time.Duration(float64(s.seconds) * st.share * float64(time.Second))
	var watch sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	if w.over != nil {
		watch.Go(func() { w.watchArrivals(watching) })
	}
	err := w.storm(ctx, newPlan(kinds, s.seed), began.Add(length), r)
	stop()
	watch.Wait()
	if err != nil {
		return err
	}
	r.Seconds += time.Since(began).Seconds()
	if w.over != nil {
		w.measureAgain(ctx)
	}
	if w.work != nil {
		w.work.end(drainMax)
	}
	w.load.end(drainMax)
	if err := w.drain(ctx); err != nil {
		fmt.Fprintf(out, "%v\n", err)
		r.Stuck++
		return w.closeBooks(ctx, r)
	}
	fmt.Fprintf(out, "stage %s: all %d have ended; the books are closed\n", st.name, w.load.acceptedCount())
	return w.closeBooks(ctx, r)
}

// storm lets one fault after the other loose until the time is over and each kind
// has had its turn.
func (w *world) storm(ctx context.Context, p *plan, until time.Time, r *report) error {
	quiet := time.Now()
	for n := 1; time.Now().Before(until) || !p.all(); n++ {
		in := p.next()
		if err := pause(ctx, in.pause+w.over.quietFor()); err != nil {
			return err
		}
		in.begins()
		w.over.wasQuiet(quiet, in.at)
		before := w.load.acceptedCount()
		err := in.kind.run(ctx, w, in)
		for _, why := range in.wrong {
			fmt.Fprintf(w.out, "WRONG: fault %d, %s: %s\n", n, in.kind.name, why)
			r.Wrong++
		}
		if errors.Is(err, syscall.EPERM) { // neither mounts nor limits of other users' processes are ours to make
			r.leftOut(in.kind.name)
			quiet = time.Now()
			continue
		}
		if err != nil {
			return fmt.Errorf("fault %d, %s: %w", n, in.kind.name, err)
		}
		healed := time.Now()
		err = w.settle(ctx, recoverMax)
		took := time.Since(healed)
		r.add(in.kind.name, healed.Sub(in.at), took, err == nil)
		fmt.Fprintf(w.out, "%4d %-20s %-14s at %s held %5d ms, recovered in %5d ms (probes %d), %d accepted, backlog %d\n", n, in.kind.name, in.on,
			in.at.UTC().Format("15:04:05.0"), healed.Sub(in.at).Milliseconds(), took.Milliseconds(), w.probed.Milliseconds(), w.load.acceptedCount()-before, w.backlogNow(ctx))
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(w.out, "fault %d, %s: never recovered: %v\n", n, in.kind.name, err)
			return nil // the books are closed all the same
		}
		quiet = time.Now()
		t, err := w.hears(ctx, in, healed)
		if err != nil {
			return err
		}
		r.hear(in.kind.name, t)
		fmt.Fprintf(w.out, "     %s\n", t)
	}
	w.over.wasQuiet(quiet, time.Now())
	return nil
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

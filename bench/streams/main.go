// Streams measures an installation of three machines, each with a NATS server (replicas: 3)
// and a node, and one database: how many tasks it does with 1 and with 3 task streams, how
// long the partitions of a lost machine are without an owner, and whether anything that was
// accepted is lost with it. Each machine is a network namespace of this one where the rights
// allow it, else all are on its loopback: figures are ratios of runs side by side.
//
//	go -C bench run ./streams -rounds 3 -seconds 12
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/localpg"
)

// settings are what a run is told.
type settings struct {
	duly, nats, sync string
	ping             time.Duration // 0: the servers' default
	rounds, seconds  int
	workers, rate    int
}

func main() {
	var set settings
	set.define()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &set); err != nil {
		fmt.Fprintln(os.Stderr, "streams:", err)
		os.Exit(1)
	}
}

// define makes the flags.
func (set *settings) define() {
	flag.IntVar(&set.rounds, "rounds", 3, "rounds, each with 1 and with 3 task streams, and the loss of another machine")
	flag.IntVar(&set.seconds, "seconds", 12, "seconds of load")
	flag.IntVar(&set.workers, "workers", 384, "submitters, each with one submission at a time")
	flag.IntVar(&set.rate, "rate", 200, "submissions a second while a machine is lost")
	flag.StringVar(&set.sync, "sync", "always", "sync_interval of the NATS servers")
	flag.DurationVar(&set.ping, "ping", 0, "ping_interval among the NATS servers, and half their write_deadline; 0: the default, by which a silent server counts as alive for some 20 s")
}

func run(ctx context.Context, set *settings) (err error) {
	dir, err := os.MkdirTemp("", "duly-streams-")
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "logs:", dir)
		}
	}()
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	if filepath.Base(root) == "bench" { // run in the laboratory's own module
		root = filepath.Dir(root)
	}
	for program, from := range map[*string]string{&set.duly: "duly.dev/duly/cmd/duly", &set.nats: "github.com/nats-io/nats-server/v2"} {
		*program = filepath.Join(dir, filepath.Base(filepath.Dir(from))+"-bin")
		build := exec.CommandContext(ctx, "go", "build", "-o", *program, from)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", from, err, out)
		}
	}
	pg, err := localpg.Start(localpg.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	network, why := newNetwork()
	defer network.close()
	if why != nil {
		fmt.Println("no network namespaces, all on the loopback:", why)
	}
	return measure(ctx, set, network, pg, dir)
}

// figures are those of one run.
type figures struct {
	perSecond float64
	takeover  time.Duration // from the loss to an owner for every partition
	gap       time.Duration // the longest time without an accepted submission around it
	lost      int
	accepted  int
}

func measure(ctx context.Context, set *settings, network *network, pg *localpg.Cluster, dir string) error {
	all := map[int][]figures{}
	for round := range set.rounds {
		order := []int{1, 3}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, streams := range order {
			folder := filepath.Join(dir, fmt.Sprintf("r%d-k%d", round, streams))
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return fmt.Errorf("folder: %w", err)
			}
			f, err := one(ctx, set, network, pg, folder, streams, round%machines)
			if err != nil {
				return fmt.Errorf("round %d with %d streams: %w", round, streams, err)
			}
			fmt.Printf("round %d, %d task streams: %.0f tasks/s, takeover %v, no acceptance for %v, %d accepted, %d lost\n",
				round, streams, f.perSecond, f.takeover.Round(10*time.Millisecond), f.gap.Round(10*time.Millisecond), f.accepted, f.lost)
			all[streams] = append(all[streams], f)
		}
	}
	for _, streams := range []int{1, 3} {
		fmt.Printf("median, %d task streams: %.0f tasks/s, takeover %v, no acceptance for %v\n", streams,
			median(all[streams], func(f figures) float64 { return f.perSecond }),
			time.Duration(median(all[streams], func(f figures) float64 { return float64(f.takeover) })).Round(10*time.Millisecond),
			time.Duration(median(all[streams], func(f figures) float64 { return float64(f.gap) })).Round(10*time.Millisecond))
	}
	for _, fs := range all {
		for _, f := range fs {
			if f.lost > 0 {
				return errors.New("tasks were lost")
			}
		}
	}
	return nil
}

func median(all []figures, of func(figures) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, of(f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// one measures one installation: full load, then the loss of a machine under a steady one.
func one(ctx context.Context, set *settings, network *network, pg *localpg.Cluster, dir string, streams, victim int) (f figures, err error) {
	w, err := open(ctx, set, network, pg, dir, streams)
	if err != nil {
		return f, err
	}
	defer w.close()
	fmt.Printf("  %d task streams led by %s\n", streams, w.leads())
	var next atomic.Int64
	f.perSecond = w.full(ctx, &next, time.Duration(set.seconds)*time.Second)
	if missing, err := w.lost(ctx); err != nil || len(missing) > 0 {
		return f, errors.Join(err, fmt.Errorf("%d tasks are lost before a machine is", len(missing)))
	}
	if err := w.lose(ctx, &next, victim, &f); err != nil {
		return f, err
	}
	missing, err := w.lost(ctx)
	if err != nil {
		return f, err
	}
	f.lost, f.accepted = len(missing), w.count()
	if len(missing) > 0 {
		fmt.Println("  lost:", missing[:min(10, len(missing))])
	}
	return f, nil
}

// full is how many tasks a second end while every submitter always has one on its way,
// after a warm-up of a quarter.
func (w *world) full(ctx context.Context, next *atomic.Int64, lasts time.Duration) float64 {
	load, cancel := context.WithTimeout(ctx, lasts+lasts/4)
	defer cancel()
	var wg sync.WaitGroup
	for range w.set.workers {
		wg.Go(func() {
			for load.Err() == nil {
				w.submit(load, int(next.Add(1)), true)
			}
		})
	}
	time.Sleep(lasts / 4)
	from, began := w.ended(ctx), time.Now()
	time.Sleep(lasts)
	rate := float64(w.ended(ctx)-from) / time.Since(began).Seconds()
	wg.Wait()
	return rate
}

// lose takes a machine from the network and kills its server and its node, while
// submissions come in steadily.
func (w *world) lose(ctx context.Context, next *atomic.Int64, victim int, f *figures) error {
	load, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(w.set.rate))
		defer tick.Stop()
		for load.Err() == nil {
			<-tick.C
			wg.Go(func() { w.submit(load, int(next.Add(1)), false) })
		}
	})
	time.Sleep(2 * time.Second)
	if err := w.net.cut(victim, true); err != nil {
		return err
	}
	kill(w.nodes[victim])
	kill(w.nats[victim])
	lost, last, was := time.Now(), time.Now(), w.count()
	dead := "node" + strconv.Itoa(victim)
	err := until(ctx, "every partition has a live owner", time.Minute, func() bool {
		if now := w.count(); now > was {
			f.gap, last, was = max(f.gap, time.Since(last)), time.Now(), now
		}
		owners := w.owners(ctx)
		return owners != nil && owners[dead] == 0
	})
	f.takeover = time.Since(lost)
	time.Sleep(2 * time.Second)
	f.gap = max(f.gap, time.Since(last)-2*time.Second)
	return errors.Join(err, w.net.cut(victim, false))
}

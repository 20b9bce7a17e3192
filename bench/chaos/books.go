package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/schema"
)

// recoverMax is how long the system may take to recover; after it, it never did.
const recoverMax = 2 * time.Minute

// lookEvery is how often the system is looked at while it recovers.
const lookEvery = 20 * time.Millisecond

// watchEvery is how often the backlog is looked at for the load's sake.
const watchEvery = 250 * time.Millisecond

// settle waits until the system works again: a fresh delivery in each partition is
// accepted and ends, no more is unfinished than when nothing is wrong, and every
// process is ready.
func (w *world) settle(ctx context.Context, patience time.Duration) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := w.probe(ctx); err != nil {
		return err
	}
	w.probed = time.Since(began)
	if w.goneBack {
		if err := w.wentBack(ctx); err != nil {
			return err
		}
		w.goneBack = false
	}
	if err := w.await(ctx, "the backlog stays", func(ctx context.Context) (bool, error) {
		n, err := w.backlog(ctx)
		return err == nil && n <= w.backlogMost(), err
	}); err != nil {
		return fmt.Errorf("%w, %d unfinished", err, w.backlogNow(context.WithoutCancel(ctx)))
	}
	for _, p := range w.everyRole() {
		if err := w.await(ctx, p.name+" is not ready", func(ctx context.Context) (bool, error) { return p.works(ctx), nil }); err != nil {
			return err
		}
	}
	return nil
}

// probe hands a fresh delivery in for each partition, and waits until all have
// ended.
func (w *world) probe(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, partitions)
	for partition := range partitions {
		wg.Go(func() {
			began := time.Now()
			id, err := w.load.submitTo(ctx, partition)
			if err != nil {
				errs[partition] = fmt.Errorf("a fresh delivery in partition %d is not accepted: %w", partition, err)
				return
			}
			answered := time.Now()
			var v core.View
			errs[partition] = w.await(ctx, fmt.Sprintf("delivery %s in partition %d has not ended", id, partition), func(ctx context.Context) (bool, error) {
				v, err = w.view(ctx, partition, id)
				return err == nil && v.State.Ended(), err
			})
			if time.Since(began) > slowProbe {
				w.tellSlow(context.WithoutCancel(ctx), began, answered, &v)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// view is one task as it is stored.
func (w *world) view(ctx context.Context, partition int, id string) (core.View, error) {
	store, err := w.store()
	if err != nil {
		return core.View{}, err
	}
	return store.Get(ctx, partition, id)
}

// await asks until it is so or ctx ends.
func (w *world) await(ctx context.Context, otherwise string, so func(context.Context) (bool, error)) error {
	for {
		step, cancel := context.WithTimeout(ctx, 5*time.Second)
		ok, err := so(step)
		cancel()
		if ok {
			return nil
		}
		if late := pause(ctx, lookEvery); late != nil {
			return fmt.Errorf("%s: %w", otherwise, errors.Join(late, err))
		}
	}
}

// ended is how many tasks have ended. It is exact where the database never went back.
func (w *world) ended(ctx context.Context) (int, error) {
	n, err := w.ends(ctx)
	return n - int(w.skew.Load()), err
}

// ends is how many numbers were given to ends: where the database went back, some of them
// are not in it.
func (w *world) ends(ctx context.Context) (int, error) {
	store, err := w.store()
	if err != nil {
		return 0, err
	}
	if w.work != nil {
		return w.deliveriesEnded(ctx, store)
	}
	all, err := store.Cursors(ctx)
	n := 0
	for i := range all {
		n += int(all[i].NextEnd) - 1
	}
	return n, err
}

// deliveriesEnded is ends without the tasks of a workload.
func (w *world) deliveriesEnded(ctx context.Context, store schema.Store) (int, error) {
	counts, err := store.Counts(ctx)
	n := 0
	for _, c := range counts {
		if c.State.Ended() && (c.Type == drone.Type || c.Type == mendType || c.Type == boundedType) {
			n += int(c.Tasks)
		}
	}
	return n, err
}

// wentBack finds out how many ends are not in a database that went back: by one statement,
// because more tasks end all the time. Its partitions must have owners again.
func (w *world) wentBack(ctx context.Context) error {
	if w.work != nil {
		return nil // its ends are counted by rows
	}
	var skew int64
	if err := w.ask(ctx, `SELECT (SELECT CAST(sum(next_end - 1) AS BIGINT) FROM partitions) - (SELECT count(*) FROM tasks WHERE state IN ('processed', 'undone', 'error'))`, &skew); err != nil {
		return err
	}
	w.skew.Store(skew)
	return nil
}

// unfinished is how many of the stored tasks have not ended.
func (w *world) unfinished(ctx context.Context) (int, error) {
	store, err := w.store()
	if err != nil {
		return 0, err
	}
	counts, err := store.Counts(ctx)
	n := 0
	for _, c := range counts {
		if !c.State.Ended() {
			n += int(c.Tasks)
		}
	}
	return n, err
}

// backlog is what was accepted and has not ended.
func (w *world) backlog(ctx context.Context) (int, error) {
	accepted := w.load.acceptedCount()
	ended, err := w.ended(ctx)
	return accepted - ended, err
}

// watchBacklog tells the load how far the system is behind, until ctx ends. While
// the store does not say, the last word counts.
func (w *world) watchBacklog(ctx context.Context) {
	for pause(ctx, watchEvery) == nil {
		if n := w.backlogNow(ctx); n >= 0 {
			w.load.behind.Store(int64(n))
		}
	}
}

// backlogNow is for people; -1: the store does not say.
func (w *world) backlogNow(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n, err := w.backlog(ctx)
	if err != nil {
		return -1
	}
	return n
}

// drain waits until everything that was taken has ended. No progress for drainMax
// is an error.
func (w *world) drain(ctx context.Context) error {
	best, left, least, since := -1, 0, -1, time.Now()
	for {
		ended, err := w.ended(ctx)
		if err == nil && ended >= w.load.acceptedCount()-w.rate { // it is not exact after a restore
			// Also what was stored and has no answer must end.
			if left, err = w.unfinished(ctx); err == nil && left == 0 && w.allEnded(ctx) {
				return nil
			}
		}
		if err == nil && ended > best {
			best, since = ended, time.Now()
		}
		if err == nil && left > 0 && (least < 0 || left < least) { // what a workload has left ends without a delivery
			least, since = left, time.Now()
		}
		if time.Since(since) > drainMax {
			return fmt.Errorf("drain: %d accepted, %d ended, %d are left, and no more end in %v: %w",
				w.load.acceptedCount(), ended, left, drainMax, errors.Join(err, errStuck))
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// allEnded looks at every task that was accepted.
func (w *world) allEnded(ctx context.Context) bool {
	store, err := w.store()
	if err != nil {
		return false
	}
	audit, err := store.Books(ctx)
	if err != nil {
		return false
	}
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	for _, id := range w.load.accepted {
		if !core.State(audit.States[id]).Ended() {
			return false
		}
	}
	return true
}

var errStuck = errors.New("it does not end")

// closeBooks holds the services' books, the state store and the event stream
// against what was accepted.
func (w *world) closeBooks(ctx context.Context, r *report) error {
	if err := w.services.Settle(ctx); err != nil {
		return err
	}
	store, err := w.store()
	if err != nil {
		return err
	}
	audit, err := store.Books(ctx)
	if err != nil {
		return err
	}
	outcomes := drone.OutcomesOf(audit.States)
	for _, twice := range audit.DoneTwice {
		outcomes.AddDone(twice.Task, drone.DoneRows{Step: twice.Step, Round: twice.Round, Rows: twice.Rows})
	}
	found, err := w.compare(ctx, store, outcomes)
	if err != nil {
		return err
	}
	for _, e := range found.Examples {
		fmt.Fprintf(w.out, "%s: task %s: %s\n", e.Finding, e.Task, e.Why)
		w.tellExample(ctx, e.Task, string(e.Finding)+": "+e.Why)
	}
	told, err := w.tellings(ctx)
	if err != nil {
		return err
	}
	for id, state := range w.told { // of a stream that was lost
		if told[id] == "" {
			told[id] = state
		}
	}
	untold := 0
	for _, id := range w.load.accepted {
		state, last := outcomes[id].State, told[id]
		// What operators act on ends more than once, and its last end must be told, too.
		if last != "" && (string(last) == state || !strings.HasPrefix(id, mendType)) {
			continue
		}
		if untold++; untold <= drone.ExamplesMax {
			fmt.Fprintf(w.out, "untold: task %s: it ended as %q, and the event stream says %q\n", id, state, last)
			w.tellExample(ctx, id, "untold")
		}
	}
	r.close(&found, untold)
	if w.work != nil {
		if err := w.closeWork(ctx, r); err != nil {
			return err
		}
	}
	if w.over != nil {
		if err := w.closeOver(ctx, r); err != nil {
			return err
		}
	}
	r.LeftOut += int(w.load.leftOut.Load())
	if n := w.load.refused.Load(); n > 0 {
		fmt.Fprintf(w.out, "%d deliveries were refused, for instance: %v\n", n, w.load.strange)
	}
	r.Refused += int(w.load.refused.Load())
	for _, p := range append(append(w.everyRole(), w.agents...), w.nats...) {
		r.Exits += p.unexpected()
	}
	w.noise(r)
	return w.readLogs(r)
}

// noise counts the lines that were too many.
func (w *world) noise(r *report) {
	for text, n := range w.logs.noise() {
		r.Noisy += n
		if r.Noise == nil {
			r.Noise = map[string]int{}
		}
		r.Noise[text] += n
		fmt.Fprintf(w.out, "noise: %d lines within a second of another of the same cause, for instance %s\n", n, w.logs.first[text])
	}
}

// tellings are the ends that the event stream tells, by id, each as it was told last.
func (w *world) tellings(ctx context.Context) (map[string]core.State, error) {
	conn, err := natsbus.Dial(ctx, natsbus.Options{URL: w.natsURL, Name: "chaos-books", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return readEvents(ctx, conn.NATS(), quietMax, func(err error) { fmt.Fprintf(w.out, "%v; reading on\n", err) })
}

// alarms are words in a log that no fault excuses: a node that ends because its database and its
// NATS do not belong together is wrong here, whatever has been done to them.
var alarms = []string{"panic:", "fatal error:", "DATA RACE", core.ErrForeignRow.Error(), "duly: pairing:"}

// readLogs looks for alarms in what the processes said.
func (w *world) readLogs(r *report) error {
	logs, err := filepath.Glob(filepath.Join(w.dir, "*.log"))
	if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	for _, at := range logs {
		text, err := os.ReadFile(at)
		if err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		for _, word := range alarms {
			if n := strings.Count(string(text), word); n > 0 {
				r.Alarms += n
				fmt.Fprintf(w.out, "alarm: %s says %q %d times\n", filepath.Base(at), word, n)
			}
		}
	}
	return nil
}

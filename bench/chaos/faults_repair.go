package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/operate"
)

// Faults that hit an operation over many tasks while it runs. What a fault is of is told by the
// parts that it hits; what the operation came to is judged by its columns, its tasks, their
// journals, the services' ledgers and the audit trail.

const (
	noBrake   = 100 // percent: a wave in which all fail alike goes on
	sickTasks = 5   // of an operation's, whose service stays shut
)

// operation is a kind's run: an operation over planted failures, with something done to it while it
// runs. during returns when the operation is over, or is about to be.
func operation(action operate.Action, step drone.Step, sick, rate, brake int, during func(context.Context, *world, *injection, *repair) error) func(context.Context, *world, *injection) error {
	return func(ctx context.Context, w *world, in *injection) error {
		ctx, cancel := context.WithTimeout(ctx, operatorMax)
		defer cancel()
		r, err := w.newRepair(ctx, action, step, sick)
		if err != nil {
			return err
		}
		var result any
		if action == operate.ActionAccept { // a person has done by hand what the service did not
			if err := w.doByHand(ctx, step, r.ids); err != nil {
				return err
			}
			result = map[string]any{}
		}
		token, err := r.freeze(ctx, w.api(), result)
		if err != nil {
			return err
		}
		if err := r.join(ctx); err != nil {
			return err
		}
		w.outage.open(r.healed...)
		in.begins()
		if err := r.begin(ctx, token, rate, brake); err != nil {
			return err
		}
		return r.finish(ctx, in, during(ctx, w, in, r))
	}
}

// finish waits until an operation has nothing left to do, and judges it.
func (r *repair) finish(ctx context.Context, in *injection, err error) error {
	if err == nil {
		err = r.settled(ctx)
	}
	if err == nil {
		var wrong []string
		wrong, err = r.judge(ctx)
		in.wrong = append(in.wrong, wrong...)
	}
	r.w.outage.open(r.ids...)
	r.w.goneBack = true // a task that ends twice has two numbers of ends
	if err == nil && r.last != nil {
		in.on += fmt.Sprintf("%s of %d: %d done, %d again, %d skipped", r.action, r.last.Tasks, r.last.Tally.Done, r.last.Tally.FailedAgain, r.last.Tally.Skipped)
	}
	return err
}

// doByHand does a step of tasks at its service, under the key of the first round.
func (w *world) doByHand(ctx context.Context, step drone.Step, ids []string) error {
	for _, id := range ids {
		call := drone.Call{Task: id, Key: fmt.Sprintf("%s/%s/0", id, step), Attempt: 1}
		for {
			bounded, cancel := context.WithTimeout(ctx, callBy)
			_, err := w.services.Do(bounded, step, call)
			cancel()
			if err == nil {
				break
			}
			if late := pause(ctx, lookEvery); late != nil {
				return fmt.Errorf("step %s of %s by hand: %w", step, id, errors.Join(late, err))
			}
		}
	}
	return nil
}

// kill kills processes at once and starts them again after the hold.
func (w *world) kill(ctx context.Context, in *injection, list ...*process) error {
	w.mended.Kills++
	var err error
	for _, p := range list {
		err = errors.Join(err, p.end(syscall.SIGKILL))
	}
	if err == nil {
		err = pause(ctx, in.hold)
	}
	for _, p := range list {
		err = errors.Join(err, p.start())
	}
	return err
}

// runner is the process that runs operations now.
func (w *world) runner(ctx context.Context) (*process, error) {
	if w.stage.topology == devOnly {
		return w.role("dev"), nil
	}
	name, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	return w.role(name), nil
}

// owners are the processes that own partitions.
func (w *world) owners() []*process {
	if w.stage.topology == devOnly {
		return []*process{w.role("dev")}
	}
	return w.schedulers()
}

// killRunner kills the node that runs the operation, in each wave.
func killRunner(ctx context.Context, w *world, in *injection, r *repair) error {
	if w.stage.topology != devOnly {
		in.due = &due{lines: []string{lineLeads}}
	}
	hits, err := r.inEachWave(ctx, wavesMax, func(int) error {
		p, err := w.runner(ctx)
		if err != nil {
			return err
		}
		return w.kill(ctx, in, p)
	})
	in.on += fmt.Sprintf("%d times, ", hits)
	return err
}

// wavesMax bounds the waves of one operation in which something is done.
const wavesMax = 6

// killOwners kills a process that owns the members' partitions, in each wave.
func killOwners(ctx context.Context, w *world, in *injection, r *repair) error {
	hits, err := r.inEachWave(ctx, wavesMax, func(wave int) error {
		all := w.owners()
		return w.kill(ctx, in, all[(int(in.pick%2)+wave)%len(all)])
	})
	in.on += fmt.Sprintf("%d times, ", hits)
	return err
}

// killDatabase takes the database away in two waves.
func killDatabase(ctx context.Context, w *world, in *injection, r *repair) error {
	hits, err := r.inEachWave(ctx, 2, func(int) error {
		w.mended.Kills++
		return errors.Join(w.pg.Crash(), pause(ctx, in.hold), w.pg.Restart())
	})
	in.on += fmt.Sprintf("%d times, ", hits)
	return err
}

// killBus takes NATS away in two waves.
func killBus(ctx context.Context, w *world, in *injection, r *repair) error {
	hits, err := r.inEachWave(ctx, 2, func(int) error { return w.kill(ctx, in, w.nats...) })
	in.on += fmt.Sprintf("%d times, ", hits)
	return err
}

// slowRate is a rate at which an operation of repairTasks lasts for some seconds, in tasks a second.
const slowRate = 8

// changeAmid changes an operation again and again, and kills what runs it between two changes. In
// the end it is stopped, or goes on to its end.
func changeAmid(ctx context.Context, w *world, in *injection, r *repair) error {
	kill := func() error {
		p, err := w.runner(ctx)
		if err != nil {
			return err
		}
		return w.kill(ctx, in, p)
	}
	quick := 0
	steps := []func() error{
		func() error {
			return r.until(ctx, "asks its second wave", func(op *operate.Operation) bool { return op.Wave >= 2 })
		},
		func() error { return r.change(ctx, operate.Change{State: operate.OperationPaused}) },
		kill,
		func() error { return r.rests(ctx) },
		func() error { return r.change(ctx, operate.Change{State: operate.OperationRunning}) },
		kill,
		func() error { return r.change(ctx, operate.Change{Rate: &quick}) },
	}
	if in.pick%2 == 0 {
		steps = append(steps, func() error { return r.change(ctx, operate.Change{State: operate.OperationStopped}) }, kill)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return r.until(ctx, "does not end", func(op *operate.Operation) bool {
		return op.State == operate.OperationDone || op.State == operate.OperationStopped
	})
}

// restsFor is how long an operation that is paused must not ask.
const restsFor = time.Second

// rests sees to it that nothing is asked while the operation is paused.
func (r *repair) rests(ctx context.Context) error {
	before, err := r.w.lookAgain(ctx, r)
	if err != nil {
		return err
	}
	if err := pause(ctx, restsFor); err != nil {
		return err
	}
	after, err := r.w.lookAgain(ctx, r)
	if err == nil && after.State == operate.OperationPaused && after.Tally.Waiting != before.Tally.Waiting {
		r.uneven[fmt.Sprintf("operation %s is paused, and %d tasks were asked", r.by[0], before.Tally.Waiting-after.Tally.Waiting)] = true
	}
	return err
}

// lookAgain looks until the store answers.
func (w *world) lookAgain(ctx context.Context, r *repair) (op operate.Operation, err error) {
	err = w.await(ctx, "the operation cannot be read", func(ctx context.Context) (bool, error) {
		op, err = r.look(ctx, r.by[0])
		return err == nil, err
	})
	return op, err
}

const (
	brakePct    = 20
	brakeWithin = 31               // members that may have been asked when an operation of which all fail has stopped itself
	brakeStands = 13 * time.Second // so long that the alert about it is told
)

// brakes is an operation all of whose tasks fail again: it stops itself; is let go on, after what runs it was killed;
// stops itself again; and is stopped.
func brakes(ctx context.Context, w *world, in *injection, r *repair) error {
	in.due = &due{alerts: []string{"operations-braked"}}
	braked := func() error {
		return r.until(ctx, "does not stop itself", func(op *operate.Operation) bool { return op.State == operate.OperationBraked })
	}
	if err := braked(); err != nil {
		return err
	}
	if n := r.last.Tasks - r.last.Tally.Waiting; n > brakeWithin {
		in.wrong = append(in.wrong, fmt.Sprintf("operation %s has asked %d tasks when it stops itself, want at most %d", r.by[0], n, brakeWithin))
	}
	p, err := w.runner(ctx)
	if err == nil {
		err = w.kill(ctx, in, p)
	}
	if err == nil {
		err = pause(ctx, brakeStands)
	}
	if err == nil {
		err = r.change(ctx, operate.Change{State: operate.OperationRunning})
	}
	if err == nil {
		err = r.until(ctx, "does not go on", func(op *operate.Operation) bool {
			return op.State == operate.OperationBraked && op.Wave > 0 || op.State == operate.OperationDone
		})
	}
	if err == nil && r.last.State != operate.OperationDone {
		err = r.change(ctx, operate.Change{State: operate.OperationStopped})
	}
	return err
}

// repairTwice previews the same failures at two nodes and starts both previews at both nodes at
// once, while what runs operations is killed. Each preview is started once at most, and each task
// is acted on by one operation.
func repairTwice(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	r, err := w.newRepair(ctx, operate.ActionResubmit, drone.StepDrone, sickTasks)
	if err != nil {
		return err
	}
	other, end, err := w.guest(ctx)
	if err != nil {
		return err
	}
	err = r.twice(ctx, in, other)
	return errors.Join(err, end())
}

func (r *repair) twice(ctx context.Context, in *injection, other string) error {
	w, bases := r.w, []string{r.w.api(), other}
	var tokens [2]string
	for i, base := range bases {
		var err error
		if tokens[i], err = r.freeze(ctx, base, nil); err != nil {
			return err
		}
	}
	w.outage.open(r.healed...)
	in.begins()
	type start struct {
		token string
		got   reply
		err   error
	}
	starts := make(chan start, len(bases)*len(tokens))
	var wg sync.WaitGroup
	for _, token := range tokens {
		for _, base := range bases {
			wg.Go(func() {
				got, err := request(ctx, base, http.MethodPost, "/v1/operations", "", startBody(token, 0, noBrake, len(r.ids)))
				starts <- start{token, got, err}
			})
		}
	}
	wg.Wait()
	close(starts)
	for s := range starts {
		switch {
		case s.err != nil || s.got.passing():
			return fmt.Errorf("start of %s: %w, %s", s.token, s.err, s.got)
		case s.got.status == http.StatusCreated && slices.Contains(r.by, s.token):
			in.wrong = append(in.wrong, fmt.Sprintf("preview %s was started twice", s.token))
		case s.got.status == http.StatusCreated:
			r.by = append(r.by, s.token)
		}
	}
	in.on = fmt.Sprintf("%d of 4 starts taken, ", len(r.by))
	if len(r.by) == 0 {
		in.wrong = append(in.wrong, "of four starts none was taken")
		return nil
	}
	p, err := w.runner(ctx)
	if err == nil {
		err = w.kill(ctx, in, p)
	}
	for _, id := range r.by {
		if err == nil {
			err = w.await(ctx, "operation "+id+" does not end", func(ctx context.Context) (bool, error) {
				op, err := r.look(ctx, id)
				return err == nil && op.State == operate.OperationDone, err
			})
		}
	}
	return r.finish(ctx, in, err)
}

// guest starts one more node that serves operators, and returns its address and what ends it.
func (w *world) guest(ctx context.Context) (base string, end func() error, err error) {
	ports, err := freeport.Find(1)
	if err != nil {
		return "", nil, err
	}
	p, err := w.newProcess("guest", httpReady(ports[0]), w.programs.newer, "serve", "--roles", "ingest", "--node-name", "guest",
		"--nats-url", as(userDuly, w.natsHosts...), "--database-url", w.database, "--http-addr", fmt.Sprintf("127.0.0.1:%d", ports[0]),
		"--partitions", fmt.Sprint(partitions), "--lease", leaseTime.String(), "--scan-interval", "250ms", "--drain", "2s",
		"--stream-max-age", "24h", "--stream-max-bytes", fmt.Sprint(4<<30), "--sync-always")
	if err != nil {
		return "", nil, err
	}
	if err := p.start(); err != nil {
		return "", nil, errors.Join(err, p.close())
	}
	if err := w.awaitReady(ctx, p); err != nil {
		return "", nil, errors.Join(err, p.close())
	}
	return fmt.Sprintf("http://127.0.0.1:%d", ports[0]), func() error { return errors.Join(p.end(syscall.SIGTERM), p.close()) }, nil
}

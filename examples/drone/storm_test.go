package drone

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// runner does with one task what Duly does: steps in order, three attempts of a
// second each, and back by undo after the grace, with ten attempts.
type runner struct {
	all   *Services
	task  string
	serve context.Context
}

func (r *runner) attempts(step Step, undo bool, most int, given uint32) (serial uint32, silent bool, err error) {
	s := r.all.Service(step)
	for attempt := range most {
		ctx, cancel := context.WithTimeout(r.serve, time.Second)
		c := callOf(r.task, step, attempt+1)
		c.Given = given
		if undo {
			err = s.Undo(ctx, c)
		} else {
			serial, err = s.Do(ctx, c)
		}
		cancel()
		silent = silent || errors.Is(err, context.DeadlineExceeded)
		if code := codeOf(err); code == 0 || code == 403 || code == 410 {
			return serial, silent, err
		}
		<-time.After(rand.N(50 * time.Millisecond << attempt))
	}
	return serial, silent, err
}

func (r *runner) run() Outcome {
	var drone uint32
	for step := range Step(StepCount) {
		serial, silent, err := r.attempts(step, false, 3, drone)
		if err != nil {
			return r.back(step, silent)
		}
		if step == StepDrone {
			drone = serial
		}
	}
	return Outcome{State: StateProcessed}
}

// back undoes from a step whose do failed or never answered: it may have taken
// effect, so it is undone too.
func (r *runner) back(from Step, silent bool) Outcome {
	if silent {
		<-time.After(250 * time.Millisecond)
	}
	for step := from + 1; step > 0; {
		if step--; !step.Undoable() {
			continue
		}
		if _, _, err := r.attempts(step, true, 10, 0); err != nil {
			return Outcome{State: StateError}
		}
	}
	return Outcome{State: StateUndone}
}

// A scheduler that keeps the rules gets through a storm without a scratch, so
// whatever the checker finds in a demo is Duly's fault and not the mocks'.
//
// covers: E11
func TestStormIsSurvivable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, sum := weather(t, ServiceOptions{Seed: 11, Scale: 1, Faults: FaultsStorm})
		if report.Undone < stormTasks/20 || report.Processed < stormTasks*3/4 || report.Error > 0 {
			t.Errorf("%d processed, %d undone, %d in error", report.Processed, report.Undone, report.Error)
		}
		if sum.Unavailable == 0 || sum.Silent == 0 || sum.Late == 0 {
			t.Errorf("this was no storm: %+v", sum)
		}
	})
}

// Here many tasks are undone while calls of theirs are still under way, so that
// tombstones and the lock on a key have work to do.
//
// covers: E11, S16
func TestHurricaneIsSurvivable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := Faults{Refused: 0.05, Transient: 0.25, TimedOut: 0.2, Silent: 0.05}
		_, sum := weather(t, ServiceOptions{Seed: 12, Scale: 1, Faults: faults, LateMax: 5 * time.Second})
		if sum.Gone == 0 || sum.TooEarly == 0 || sum.Late == 0 {
			t.Errorf("not every fault came up: %+v", sum)
		}
	})
}

const stormTasks = 3_000

// weather runs tasks through the services and expects a clean report.
func weather(t *testing.T, o ServiceOptions) (Report, Stats) {
	t.Helper()
	all := newServices(t, o)
	g := NewGenerator(o.Seed)
	outcomes := make(OutcomeMap, stormTasks)
	var (
		ids []string
		mu  sync.Mutex
		wg  sync.WaitGroup
	)
	for i := range stormTasks {
		r := runner{all: all, task: g.Request(i).DeliveryID, serve: t.Context()}
		ids = append(ids, r.task)
		wg.Go(func() {
			outcome := r.run()
			mu.Lock()
			outcomes[r.task] = outcome
			mu.Unlock()
		})
	}
	wg.Wait()
	if err := all.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	report := all.Books().Check(ids, outcomes)
	if !report.Clean() || report.Accepted != stormTasks {
		t.Errorf("report %+v", report)
	}
	var sum Stats
	for step := range Step(StepCount) {
		s := all.Service(step).Stats()
		sum.Unavailable += s.Unavailable
		sum.Silent += s.Silent
		sum.Gone += s.Gone
		sum.TooEarly += s.TooEarly
		sum.Late += s.Late
	}
	return report, sum
}

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// mendType is the type of the tasks that operators act on: the steps of a delivery, by the same
// agents, but a step that has used its attempts leaves its task in error.
const mendType = "mend"

// mendAttempts are those of each step: few, so that a service that is shut is soon an error.
const mendAttempts = 2

// mendPlan is the plan of these tasks.
func mendPlan() *duly.Plan[drone.Request] {
	plan, _ := ownPlan(mendType, "transport.check", duly.Backoff(callBy/40, callBy/20), duly.Attempts(mendAttempts))
	return plan
}

// ownPlan is a plan of the harness's own: the steps of a delivery, with an agent for the transport check, and an error where a
// step has used its attempts. The check is that one.
func ownPlan(name, transport string, options ...duly.Option) (*duly.Plan[drone.Request], *duly.Check[drone.Request, drone.Transport]) {
	var (
		checks []duly.CheckOption
		steps  []duly.StepOption
	)
	for _, o := range append(options, duly.ResultMax(1<<10), duly.CompleteBy(callBy), duly.OnExhausted(duly.PolicyError)) {
		checks, steps = append(checks, o), append(steps, o)
	}
	check := duly.NewCheck[drone.Request, drone.Transport](drone.StepTransport.String(), transport, checks...)
	return duly.NewPlan(name, 1,
		duly.NewCheck[drone.Request, drone.AccountStatus](drone.StepAccount.String(), "account.check", checks...),
		duly.NewStep[drone.Request, drone.PackageReceipt](drone.StepPackage.String(), "package.create", steps...),
		check,
		duly.NewStep[drone.Request, drone.Assignment](drone.StepDrone.String(), "drone.schedule", steps...),
		duly.NewStep[drone.Request, drone.Confirmed](drone.StepDelivery.String(), "delivery.create", steps...),
	).With(duly.InputMax(drone.BodyBytesMax), duly.Grace(callGrace)), check
}

// outage shuts services to certain tasks, and notes which tasks they were called for.
type outage struct {
	mu     sync.Mutex
	shut   map[string]shutting
	called map[string]map[drone.Step]bool // of tasks that are watched; do calls alone
}

// shutting is a service that refuses a task.
type shutting struct {
	step  drone.Step
	words string
}

// shutCode is what a service that is shut answers: it is worth another try.
const shutCode = 503

// meets is what a call meets before the service; nil: nothing.
func (o *outage) meets(ask *Ask) *drone.ServiceError {
	if ask.Undo {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if called := o.called[ask.Call.Task]; called != nil {
		called[ask.Step] = true
	}
	if s, ok := o.shut[ask.Call.Task]; ok && s.step == ask.Step {
		return &drone.ServiceError{Code: shutCode, Reason: s.words}
	}
	return nil
}

// close shuts a step's service to tasks.
func (o *outage) close(step drone.Step, words string, tasks ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut == nil {
		o.shut = map[string]shutting{}
	}
	for _, id := range tasks {
		o.shut[id] = shutting{step, words}
	}
}

// open ends it.
func (o *outage) open(tasks ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range tasks {
		delete(o.shut, id)
	}
}

// watch begins to note the calls for tasks.
func (o *outage) watch(tasks ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.called == nil {
		o.called = map[string]map[drone.Step]bool{}
	}
	for _, id := range tasks {
		o.called[id] = map[drone.Step]bool{}
	}
}

// wasCalled reports whether a step of a task that is watched was called.
func (o *outage) wasCalled(id string, step drone.Step) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.called[id][step]
}

// mends are n requests for such tasks, which nothing has submitted yet.
func (l *load) mends(n int) []drone.Request { return l.named(mendType, n) }

// named are n requests for tasks of a type that is not the deliveries', and is in their ids.
func (l *load) named(taskType string, n int) []drone.Request {
	all := make([]drone.Request, n)
	for i := range all {
		all[i] = l.requests.Request(int(l.next.Add(1)))
		all[i].DeliveryID = taskType + "-" + all[i].DeliveryID
	}
	return all
}

func idsOf(requests []drone.Request) []string {
	ids := make([]string, len(requests))
	for i := range requests {
		ids[i] = requests[i].DeliveryID
	}
	return ids
}

// submitMends submits them again and again until each is accepted.
func (w *world) submitMends(ctx context.Context, requests []drone.Request, options ...duly.SubmitOption) error {
	return w.submitAll(ctx, w.load.mend, requests, options...)
}

// submitAll submits tasks of a plan again and again until each is accepted: at once, because each that is refused waits until it
// may come again.
func (w *world) submitAll(ctx context.Context, plan *duly.Plan[drone.Request], requests []drone.Request, options ...duly.SubmitOption) error {
	var wg sync.WaitGroup
	errs := make([]error, len(requests))
	for i := range requests {
		wg.Go(func() {
			if _, err := w.load.untilAccepted(ctx, plan, requests[i], options...); err != nil {
				errs[i] = fmt.Errorf("task %s: %w", requests[i].DeliveryID, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stored is one task as it is stored.
func (w *world) stored(ctx context.Context, id string) (core.View, error) {
	return w.view(ctx, wire.PartitionOf(id, partitions), id)
}

// endedAll waits until tasks have ended, and returns how each stands.
func (w *world) endedAll(ctx context.Context, ids []string) (map[string]core.View, error) {
	is := make(map[string]core.View, len(ids))
	err := w.await(ctx, fmt.Sprintf("%d tasks have not all ended", len(ids)), func(ctx context.Context) (bool, error) {
		for _, id := range ids {
			if v := is[id]; v.State.Ended() {
				continue
			}
			v, err := w.stored(ctx, id)
			if err != nil {
				return false, err
			}
			if is[id] = v; !v.State.Ended() {
				return false, nil
			}
		}
		return true, nil
	})
	return is, err
}

// words tell the failures of one plant from those of all others: a fingerprint leaves numbers out.
func (w *world) words() string {
	w.plants++
	n, text := w.plants, "the depot of"
	for range 3 {
		text += " " + plantWords[n%len(plantWords)]
		n /= len(plantWords)
	}
	return text + " is shut"
}

var plantWords = []string{
	"alfa", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima", "mike", "november", "oscar", "papa", "quebec", "romeo",
}

// plant makes n tasks that are in error because a step's service was shut to them, which it still
// is. Of those that were submitted some may have met another trouble.
func (w *world) plant(ctx context.Context, n int, step drone.Step, words string) ([]string, error) {
	requests := w.load.mends(n)
	ids := idsOf(requests)
	w.outage.close(step, words, ids...)
	if err := w.submitMends(ctx, requests); err != nil {
		return nil, err
	}
	is, err := w.endedAll(ctx, ids)
	if err != nil {
		return nil, err
	}
	var failed []string
	for _, id := range ids {
		if v := is[id]; v.State == core.StateError && v.FailedStep == step.String() {
			failed = append(failed, id)
		}
	}
	if len(failed) == 0 || len(failed) < n/2 {
		return nil, fmt.Errorf("%d of %d planted tasks are in error at step %s", len(failed), n, step)
	}
	return failed, nil
}

// operatorMax bounds what a fault of operators' work takes altogether.
const operatorMax = 4 * time.Minute

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
)

// boundedType is the type of the tasks whose transport check has an agent of its own: its limit and
// its breaker hit no delivery.
const boundedType = "bounded"

const (
	boundedAgent    = "transport.bounded"
	boundedStep     = drone.StepTransport
	boundedAttempts = 20              // so many that no fault here uses them up
	boundedTime     = 2 * operatorMax // of a task: no breaker is open for longer
)

// boundedPlan is the plan of these tasks, and the check that its agent performs.
func boundedPlan() (*duly.Plan[drone.Request], *duly.Check[drone.Request, drone.Transport]) {
	plan, check := ownPlan(boundedType, boundedAgent, duly.Backoff(callBy/4, callBy), duly.Attempts(boundedAttempts))
	return plan.With(duly.TaskCompleteBy(boundedTime)), check
}

// serveBounded lets an agent perform that check at a service.
func serveBounded(a *duly.Agent, at drone.Backend) error {
	_, check := boundedPlan()
	return check.Serve(a, func(ctx context.Context, c duly.Call[drone.Request]) (drone.Transport, error) {
		_, err := at.Do(ctx, boundedStep, drone.Call{Task: c.Task, Key: c.Key, Attempt: c.Attempt})
		var failed *drone.ServiceError
		if errors.As(err, &failed) && failed.Code < http.StatusInternalServerError {
			return drone.Transport{}, duly.RefuseCode(failed.Code, err)
		}
		return drone.Transport{}, err
	})
}

// bounded are n requests for such tasks, of so many owners in turn.
func (l *load) bounded(n, owners int) []drone.Request {
	all := l.named(boundedType, n)
	for i := range all {
		all[i].OwnerID = fmt.Sprintf("owner-%d", i%owners)
	}
	return all
}

// submitters are how many submit bounded tasks at a time.
const submitters = 8

// submitBounded submits them again and again until each is accepted.
func (w *world) submitBounded(ctx context.Context, requests []drone.Request) error {
	errs := make([]error, submitters)
	var wg sync.WaitGroup
	for s := range submitters {
		wg.Go(func() {
			for i := s; i < len(requests) && errs[s] == nil; i += submitters {
				errs[s] = w.submitAll(ctx, w.load.bound, requests[i:i+1])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

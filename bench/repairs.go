package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

const (
	repairRate    = 2000 // tasks a second of the load
	repairTasks   = 10_000
	repairPairs   = 2
	repairSeconds = 10
	repairHighest = 10_000 // tasks a second: the most that may be asked of an operation
	repairMax     = 5 * time.Minute
	repairLook    = 100 * time.Millisecond
	repairAskMax  = time.Minute // freezing and rehearsing take longer than a list
)

// OperationTime is how an operation over many tasks went beside a load.
type OperationTime struct {
	Rate      int                    `json:"rate"` // asked for, tasks a second; 0: the default
	Tasks     int64                  `json:"tasks"`
	PreviewMS float64                `json:"preview_ms"` // until the members were frozen and the rehearsal played
	Seconds   float64                `json:"seconds"`    // from its start to its end: the step that had failed has passed in all
	EndedS    float64                `json:"ended_s"`    // from its start until all have ended, with the steps that come after
	TasksPerS float64                `json:"tasks_per_s"`
	Covered   float64                `json:"covered"` // of the load's time, until all have ended
	State     operate.OperationState `json:"state"`
	Why       string                 `json:"why,omitempty"`
	Tally     operate.Tally          `json:"tally"`
}

// String is a line of a table.
func (o *OperationTime) String() string {
	rate := "its default rate"
	if o.Rate > 0 {
		rate = fmt.Sprintf("%d/s at most", o.Rate)
	}
	return fmt.Sprintf("operation at %s: %s, %d of %d done in %.1f s, %.0f/s; all ended after %.1f s, which is %.0f %% of the load's time; preview %.0f ms %s", rate, o.State, o.Tally.Done, o.Tasks,
		o.Seconds, o.TasksPerS, o.EndedS, 100*o.Covered, o.PreviewMS, o.Why)
}

// repairs measures a load without and with an operation beside it that repairs many failed tasks, at the operation's
// default rate and at the highest.
func repairs(ctx context.Context, s *settings, command string, out io.Writer) error {
	seconds, tasks, pairs := orElse(s.seconds, repairSeconds), orElse(s.preload, repairTasks), orElse(s.pairs, repairPairs)
	res, err := newPairs(s, command, fmt.Sprintf("an operation that resubmits %d failed tasks of five steps each", tasks), seconds)
	if err != nil {
		return err
	}
	rate := orElse(s.rate, repairRate)
	groups := pairs + 1
	o := rigOptions{HTTP: true, Prepare: func(ctx context.Context, r *rig) error { return r.plant(ctx, groups, tasks) }}
	_, err = within(ctx, o, s, func(r *rig) (*Result, error) {
		var last *Result
		if _, err := r.load(ctx, []segment{warmUp, {Rate: rate, For: warmUp.For}}); err != nil {
			return nil, err
		}
		group := 0
		for _, at := range []struct {
			name  string
			rate  int
			pairs int
		}{{"operation at its default rate", 0, pairs}, {"operation at its highest rate", repairHighest, 1}} {
			c := &Compared{Rate: rate, What: at.name}
			c.Pairs, err = alternate(at.pairs, func(_ int, with bool) (Side, error) {
				segments := []segment{warmUp, {Rate: rate, For: time.Duration(seconds) * time.Second}}
				var err error
				if !with {
					last, err = r.load(ctx, segments)
				} else {
					var took *OperationTime
					last, took, err = r.repairing(ctx, segments, group, at.rate)
					group++
					c.Operation = append(c.Operation, took)
				}
				if err != nil {
					return Side{}, err
				}
				fmt.Fprintf(os.Stderr, "repairs: %s, %v: %.0f/s, e2e p99 %.0f ms\n", at.name, with, last.TasksPerS, last.EndToEnd.P99)
				return sideOf(last), nil
			})
			if err != nil {
				return nil, err
			}
			c.settle()
			res.Compared = append(res.Compared, c)
		}
		return last, nil
	})
	if err != nil {
		return err
	}
	return publishTable(s, res, out)
}

// failedPlan is the delivery's with another name and policy: its first step was tried once and failed, which is an error.
func failedPlan(group int) core.Plan {
	p := parkedPlan()
	p.Name, p.Version = failedType(group), 1
	for i := range p.Steps {
		p.Steps[i].OnExhausted, p.Steps[i].Pause = core.PolicyError, 0
	}
	return p.WithDefaults()
}

// failedType is a type of its own, so that the generator does not take their ends for those of its load.
func failedType(group int) string { return fmt.Sprintf("%s-failed-%d", drone.Type, group) }

// plant puts groups of failed tasks into the store, and their ids to those that are checked in the end: a repaired one is
// in the books of the services as any other.
func (r *rig) plant(ctx context.Context, groups, tasks int) error {
	if err := node.Migrate(ctx, r.database); err != nil {
		return err
	}
	store, err := dialects.Open(ctx, r.database, schema.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	y := &yard{store: store, at: core.InstantOf(time.Now().Add(-time.Hour))}
	err = y.open(ctx, r.partitions)
	for g := 0; g < groups && err == nil; g++ {
		err = y.fill(ctx, failedPlan(g), core.StateError, tasks)
	}
	if err == nil {
		err = y.close(ctx)
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return fmt.Errorf("failed tasks: %w", err)
	}
	var ids bytes.Buffer
	requests := drone.NewGenerator(yardSeed)
	for i := range y.made {
		request := requests.Request(i)
		ids.WriteString(request.DeliveryID + "\n")
	}
	return os.WriteFile(r.acceptedFile(), ids.Bytes(), 0o600)
}

// repairing offers a load, and has a group repaired from the beginning of what is measured on.
func (r *rig) repairing(ctx context.Context, segments []segment, group, rate int) (*Result, *OperationTime, error) {
	took := &OperationTime{Rate: rate}
	began := time.Now()
	var preview operate.Preview
	err := r.send(ctx, http.MethodPost, "/v1/operations/preview", map[string]any{
		"selection": map[string]any{"filter": map[string]any{"type": failedType(group), "state": core.StateError}},
		"action":    operate.ActionResubmit, "request": map[string]any{"reason": "bench"},
	}, &preview)
	if err != nil {
		return nil, nil, err
	}
	took.PreviewMS, took.Tasks = ms(time.Since(began)), preview.Tasks
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = r.repair(ctx, &preview, failedType(group), took) })
	res, err := r.load(ctx, segments)
	wg.Wait()
	if err = errors.Join(err, failed); err != nil {
		return nil, nil, err
	}
	took.Covered = min(1, took.EndedS/res.Seconds)
	return res, took, nil
}

// repair starts the preview when the warm-up is over, and waits until it is over and its tasks, of that type, have ended.
func (r *rig) repair(ctx context.Context, preview *operate.Preview, taskType string, took *OperationTime) error {
	if !pause(ctx, warmUp.For) {
		return ctx.Err()
	}
	began := time.Now()
	var op operate.Operation
	err := r.send(ctx, http.MethodPost, "/v1/operations", map[string]any{"token": preview.Token, "rate": took.Rate, "reason": "bench", "confirm": preview.Tasks}, &op)
	if err != nil {
		return err
	}
	for op.State == operate.OperationRunning {
		if time.Since(began) > repairMax {
			return fmt.Errorf("the operation has not ended in %v: %+v", repairMax, op.Tally)
		}
		if !pause(ctx, repairLook) {
			return ctx.Err()
		}
		if err := r.send(ctx, http.MethodGet, "/v1/operations/"+op.ID, nil, &op); err != nil {
			return err
		}
	}
	took.Seconds, took.State, took.Why, took.Tally = time.Since(began).Seconds(), op.State, op.Why, op.Tally
	took.TasksPerS = float64(op.Tally.Done) / took.Seconds
	if op.Tally.Done != preview.Tasks {
		return fmt.Errorf("the operation is %s and repaired %d of %d tasks: %s", op.State, op.Tally.Done, preview.Tasks, op.Why)
	}
	for _, state := range []core.State{core.StatePending, core.StateProcessing, core.StateUndoing, core.StatePending} {
		if err := r.none(ctx, taskType, state, began); err != nil {
			return err
		}
	}
	took.EndedS = time.Since(began).Seconds()
	return nil
}

// none waits until no task of a type is in a state.
func (r *rig) none(ctx context.Context, taskType string, state core.State, began time.Time) error {
	for {
		var page struct {
			Tasks []json.RawMessage `json:"tasks"`
		}
		if err := r.send(ctx, http.MethodGet, fmt.Sprintf("/v1/tasks?limit=1&type=%s&state=%s", taskType, state), nil, &page); err != nil {
			return err
		}
		switch {
		case len(page.Tasks) == 0:
			return nil
		case time.Since(began) > repairMax:
			return fmt.Errorf("tasks of type %s are still %s after %v", taskType, state, repairMax)
		case !pause(ctx, repairLook):
			return ctx.Err()
		}
	}
}

// send sends a request with a JSON body, if there is one, and reads the answer.
func (r *rig) send(ctx context.Context, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("request to %s: %w", path, err)
	}
	if body == nil {
		text = nil
	}
	ask, err := http.NewRequestWithContext(ctx, method, r.httpURL+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	ask.Header.Set("Authorization", "Bearer "+r.token)
	if body != nil {
		ask.Header.Set("Content-Type", "application/json")
	}
	got, err := bodyOf(&http.Client{Timeout: repairAskMax}, ask)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("answer of %s: %w", path, err)
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// parkedPlan is the delivery's with another policy: its first step was tried
// once, failed, and waits.
func parkedPlan() core.Plan {
	p := core.Plan{Name: drone.Type, Version: 2, CompleteBy: 30 * 24 * time.Hour}
	for i, agent := range []string{"account.check", "package.create", "transport.check", "drone.schedule", "delivery.create"} {
		step := drone.Step(i)
		s := core.Step{Name: step.String(), Agent: agent, Undoable: step.Undoable(), AttemptsMax: 1, OnExhausted: core.PolicyWait, Pause: parkedFor}
		if i > 0 {
			s.After = []int{i - 1}
		}
		p.Steps = append(p.Steps, s)
	}
	return p.WithDefaults()
}

// park puts n tasks into the store that are parked until due, each as the owner
// of its partition would have written it.
func (r *rig) park(ctx context.Context, n int, due core.Instant) error {
	if err := node.Migrate(ctx, r.database); err != nil {
		return err
	}
	store, err := dialects.Open(ctx, r.database, schema.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	y := &yard{store: store, at: due.Add(-parkedFor)}
	if err = y.open(ctx, r.partitions); err == nil {
		err = errors.Join(y.fill(ctx, parkedPlan(), core.StatePending, n), y.close(ctx))
	}
	return errors.Join(err, store.Close())
}

// yardSeed is that of the deliveries that a yard makes.
const yardSeed = 77

// yard is where tasks are made whose first try failed.
type yard struct {
	store  schema.Store
	at     core.Instant // when they were born and failed
	states []core.PartitionState
	batch  core.Batch
	made   int // deliveries so far
}

const parkBatch = 1000

// open takes over all partitions.
func (y *yard) open(ctx context.Context, partitions int) error {
	if err := y.store.Partitions(ctx, partitions); err != nil {
		return err
	}
	for p := range partitions {
		state, err := y.store.TakeOver(ctx, p, core.Claim{Owner: "bench", Commit: y.batch.ID})
		if err != nil {
			return err
		}
		y.states = append(y.states, state)
	}
	return nil
}

// close releases them.
func (y *yard) close(ctx context.Context) error {
	for p := range y.states {
		if err := y.store.Release(ctx, p, y.states[p].Epoch); err != nil {
			return err
		}
	}
	return nil
}

// fill makes n tasks of a plan, of which a failed first try makes that state.
func (y *yard) fill(ctx context.Context, plan core.Plan, state core.State, n int) error {
	if err := y.store.PutPlan(ctx, plan); err != nil {
		return err
	}
	requests := drone.NewGenerator(yardSeed)
	for i := range n {
		if err := y.add(&plan, state, requests.Request(y.made)); err != nil {
			return err
		}
		y.made++
		if len(y.batch.Writes) == parkBatch || i == n-1 {
			if err := y.commit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// add lets the core decide what becomes of one task whose first try failed.
func (y *yard) add(plan *core.Plan, want core.State, request drone.Request) error {
	input, err := json.Marshal(&request)
	if err != nil {
		return fmt.Errorf("delivery %s: %w", request.DeliveryID, err)
	}
	state := &y.states[wire.PartitionOf(request.DeliveryID, len(y.states))]
	task := &core.Task{Partition: state.Partition, Number: state.NextNumber, ID: request.DeliveryID, Type: plan.Name, Input: input, InputHash: core.HashInput(plan.Name, input), CreatedAt: y.at}
	state.NextNumber++
	var out core.Outcome
	core.Birth(plan, task, &core.Event{At: y.at, Actor: "bench", Node: "bench"}, &out)
	records := append([]core.Record(nil), out.Records...)
	failed := core.Event{Kind: core.EventReply, At: y.at, Actor: "agent", Node: "bench", Seq: task.Seq, Code: core.CodeAgentError, Error: "busy"}
	if err := core.Apply(plan, task, &failed, &out); err != nil {
		return fmt.Errorf("fail task %s: %w", task.ID, err)
	}
	if task.State != want {
		return fmt.Errorf("task %s is %s, want %s", task.ID, task.State, want)
	}
	if task.State.Ended() {
		state.NextEnd = max(1, state.NextEnd)
		task.EndNumber = state.NextEnd
		state.NextEnd++
	}
	y.batch.Writes = append(y.batch.Writes, core.TaskWrite{Task: task, Birth: true, Records: append(records, out.Records...)})
	return nil
}

func (y *yard) commit(ctx context.Context) error {
	y.batch.ID++
	y.batch.Node = "bench"
	y.batch.Partitions = y.batch.Partitions[:0]
	for _, s := range y.states {
		y.batch.Partitions = append(y.batch.Partitions, core.PartitionWrite{
			Partition: s.Partition, Epoch: s.Epoch, After: y.batch.ID - 1, NextNumber: max(1, s.NextNumber), NextEnd: max(1, s.NextEnd), Told: max(1, s.NextEnd) - 1})
	}
	res, err := y.store.Commit(ctx, &y.batch)
	if err == nil && len(res.Fenced)+len(res.Duplicates) > 0 {
		err = fmt.Errorf("parked tasks: %d fenced, %d duplicates", len(res.Fenced), len(res.Duplicates))
	}
	clear(y.batch.Writes)
	y.batch.Writes = y.batch.Writes[:0]
	return err
}

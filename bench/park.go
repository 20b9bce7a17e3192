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
	y := &yard{store: store, plan: parkedPlan(), at: due.Add(-parkedFor)}
	return errors.Join(y.fill(ctx, r.partitions, n), store.Close())
}

// yard is where parked tasks are made.
type yard struct {
	store  schema.Store
	plan   core.Plan
	at     core.Instant // when they were born and failed
	states []core.PartitionState
	batch  core.Batch
}

const parkBatch = 1000

func (y *yard) fill(ctx context.Context, partitions, n int) error {
	if err := errors.Join(y.store.Partitions(ctx, partitions), y.store.PutPlan(ctx, y.plan)); err != nil {
		return err
	}
	for p := range partitions {
		state, err := y.store.TakeOver(ctx, p, core.Claim{Owner: "bench", Commit: y.batch.ID})
		if err != nil {
			return err
		}
		y.states = append(y.states, state)
	}
	requests := drone.NewGenerator(77)
	for i := range n {
		if err := y.add(requests.Request(i)); err != nil {
			return err
		}
		if len(y.batch.Writes) == parkBatch || i == n-1 {
			if err := y.commit(ctx); err != nil {
				return err
			}
		}
	}
	for p := range y.states {
		if err := y.store.Release(ctx, p, y.states[p].Epoch); err != nil {
			return err
		}
	}
	return nil
}

// add lets the core decide what becomes of one task whose first try failed.
func (y *yard) add(request drone.Request) error {
	input, err := json.Marshal(&request)
	if err != nil {
		return fmt.Errorf("delivery %s: %w", request.DeliveryID, err)
	}
	state := &y.states[wire.PartitionOf(request.DeliveryID, len(y.states))]
	task := &core.Task{Partition: state.Partition, Number: state.NextNumber, ID: request.DeliveryID, Type: drone.Type, Input: input, InputHash: core.HashInput(drone.Type, input), CreatedAt: y.at}
	state.NextNumber++
	var out core.Outcome
	core.Birth(&y.plan, task, &core.Event{At: y.at, Actor: "bench", Node: "bench"}, &out)
	records := append([]core.Record(nil), out.Records...)
	failed := core.Event{Kind: core.EventReply, At: y.at, Actor: "agent", Node: "bench", Seq: task.Seq, Code: core.CodeAgentError, Error: "busy"}
	if err := core.Apply(&y.plan, task, &failed, &out); err != nil {
		return fmt.Errorf("park task %s: %w", task.ID, err)
	}
	if task.State != core.StatePending {
		return fmt.Errorf("task %s is %s, not parked", task.ID, task.State)
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
			Partition: s.Partition, Epoch: s.Epoch, After: y.batch.ID - 1, NextNumber: max(1, s.NextNumber), NextEnd: max(1, s.NextEnd)})
	}
	res, err := y.store.Commit(ctx, &y.batch)
	if err == nil && len(res.Fenced)+len(res.Duplicates) > 0 {
		err = fmt.Errorf("parked tasks: %d fenced, %d duplicates", len(res.Fenced), len(res.Duplicates))
	}
	clear(y.batch.Writes)
	y.batch.Writes = y.batch.Writes[:0]
	return err
}

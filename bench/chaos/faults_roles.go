package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// Faults of the processes: roles and agents that die, freeze, stall, or are
// overtaken by a flood.

// killed kills processes and starts them again after the hold.
func killed(ctx context.Context, in *injection, list ...*process) error {
	for _, p := range list {
		in.on += p.name + " "
		if err := p.end(syscall.SIGKILL); err != nil {
			return err
		}
	}
	err := pause(ctx, in.hold)
	for _, p := range list {
		err = errors.Join(err, p.start())
	}
	return err
}

// frozen stops processes without ending them, for the hold.
func frozen(ctx context.Context, in *injection, list ...*process) error {
	var err error
	for _, p := range list {
		in.on += p.name + " "
		err = errors.Join(err, p.signal(syscall.SIGSTOP))
	}
	err = errors.Join(err, pause(ctx, in.hold))
	for _, p := range list {
		err = errors.Join(err, p.signal(syscall.SIGCONT))
	}
	return err
}

// schedulersLive waits until both schedulers have their leases, which a fault before may have
// cost them: that one is gone is told only of those that were there.
func (w *world) schedulersLive(ctx context.Context) error {
	js, err := jetstream.New(w.load.doors[0])
	if err != nil {
		return fmt.Errorf("live schedulers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	for _, p := range w.schedulers() {
		if err := w.await(ctx, p.name+" has no lease", func(ctx context.Context) (bool, error) {
			kv, err := js.KeyValue(ctx, wire.Names{}.BucketNodes())
			if err != nil {
				return false, err
			}
			_, err = kv.Get(ctx, wire.NodeKey(p.name))
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

func killScheduler(ctx context.Context, w *world, in *injection) error {
	if err := w.schedulersLive(ctx); err != nil {
		return err
	}
	in.begins()
	return killed(ctx, in, one(in, w.schedulers()))
}

func killSchedulers(ctx context.Context, w *world, in *injection) error {
	return killed(ctx, in, w.schedulers()...)
}

func killIngest(ctx context.Context, w *world, in *injection) error {
	return killed(ctx, in, w.role("ingest"))
}

// killSupervisor kills one of the supervisors. If it leads, the next one says that it does.
func killSupervisor(ctx context.Context, w *world, in *injection) error {
	p := one(in, w.supervisors())
	leads, err := w.leader(ctx)
	if err != nil {
		return err
	}
	if leads == p.name {
		in.due = &due{lines: []string{lineLeads}}
	}
	return killed(ctx, in, p)
}

func stopScheduler(ctx context.Context, w *world, in *injection) error {
	if err := w.schedulersLive(ctx); err != nil {
		return err
	}
	in.begins()
	return frozen(ctx, in, one(in, w.schedulers()))
}

func stopIngest(ctx context.Context, w *world, in *injection) error {
	return frozen(ctx, in, w.role("ingest"))
}

// killAgents kills one of the agents' processes, or all of them.
func killAgents(ctx context.Context, w *world, in *injection) error {
	return killed(ctx, in, someAgents(w, in)...)
}

func stopAgents(ctx context.Context, w *world, in *injection) error {
	return frozen(ctx, in, someAgents(w, in)...)
}

func someAgents(w *world, in *injection) []*process {
	if in.pick%3 == 0 {
		return w.agents
	}
	return []*process{one(in, w.agents)}
}

// stallLeader freezes the supervisor that leads for longer than its lease: the
// other one leads, and the first wakes believing that it still does.
func stallLeader(ctx context.Context, w *world, in *injection) error {
	name, err := w.leader(ctx)
	if err != nil {
		return err
	}
	return frozen(ctx, in, w.role(name))
}

// leader is the node name of the supervisor that has the lease.
func (w *world) leader(ctx context.Context) (string, error) {
	js, err := jetstream.New(w.load.doors[0])
	if err != nil {
		return "", fmt.Errorf("leader: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kv, err := js.KeyValue(ctx, wire.Names{}.BucketNodes())
	if err != nil {
		return "", fmt.Errorf("leader: %w", err)
	}
	for {
		var held struct {
			Value string `json:"value"`
		}
		entry, err := kv.Get(ctx, wire.KeyLeader)
		if err == nil {
			err = json.Unmarshal(entry.Value(), &held)
		}
		if err == nil && w.roles[held.Value] != nil {
			return held.Value, nil
		}
		if wait := pause(ctx, 50*time.Millisecond); wait != nil {
			return "", fmt.Errorf("leader %q: %w", held.Value, errors.Join(wait, err))
		}
	}
}

// floodFactor is how many times the usual rate a flood has.
const floodFactor = 5

// floodTakeover kills a scheduler in the middle of a flood: its partitions move
// while submissions come at several times the rate.
func floodTakeover(ctx context.Context, w *world, in *injection) error {
	w.load.rate.Store(int64(w.rate * floodFactor))
	defer w.load.rate.Store(int64(w.rate))
	if err := pause(ctx, in.hold/2); err != nil {
		return err
	}
	in.hold /= 2
	return killScheduler(ctx, w, in)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// Faults of the NATS server, and of the servers of a cluster.

func killNATS(ctx context.Context, w *world, in *injection) error {
	return killed(ctx, in, w.nats...)
}

func stopNATS(ctx context.Context, w *world, in *injection) error {
	return frozen(ctx, in, w.nats...)
}

// streamLeader is the server that leads the task stream.
func (w *world) streamLeader(ctx context.Context) (*process, error) {
	js, err := jetstream.New(w.load.doors[0])
	if err != nil {
		return nil, fmt.Errorf("leader of the stream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		step, done := context.WithTimeout(ctx, time.Second)
		s, err := js.Stream(step, wire.Names{}.StreamTasks())
		done()
		if err == nil && s.CachedInfo().Cluster != nil {
			for _, p := range w.nats {
				if p.name == s.CachedInfo().Cluster.Leader {
					return p, nil
				}
			}
		}
		if wait := pause(ctx, 50*time.Millisecond); wait != nil {
			return nil, fmt.Errorf("leader of the stream: %w", errors.Join(wait, err))
		}
	}
}

func killStreamLeader(ctx context.Context, w *world, in *injection) error {
	p, err := w.streamLeader(ctx)
	if err != nil {
		return err
	}
	return errors.Join(killed(ctx, in, p), w.healthy(ctx))
}

func stopStreamLeader(ctx context.Context, w *world, in *injection) error {
	p, err := w.streamLeader(ctx)
	if err != nil {
		return err
	}
	return errors.Join(frozen(ctx, in, p), w.healthy(ctx))
}

func killNATSNode(ctx context.Context, w *world, in *injection) error {
	return errors.Join(killed(ctx, in, one(in, w.nats)), w.healthy(ctx))
}

// rollingNATS restarts the servers of the cluster one after the other, as an
// upgrade of theirs does.
func rollingNATS(ctx context.Context, w *world, in *injection) error {
	in.on = "all servers"
	for _, p := range w.nats {
		if err := errors.Join(p.end(syscall.SIGTERM), p.start(), w.healthy(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// healthy waits until every replica of the streams has caught up: a cluster that
// loses its next server before has lost two, which it does not promise to bear.
func (w *world) healthy(ctx context.Context) error {
	js, err := jetstream.New(w.load.doors[0])
	if err != nil {
		return fmt.Errorf("replicas: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	var names wire.Names
	for _, name := range []string{names.StreamTasks(), names.StreamControl(), names.StreamEvents(), "KV_" + names.BucketNodes()} {
		for {
			step, done := context.WithTimeout(ctx, time.Second)
			s, err := js.Stream(step, name)
			done()
			if err == nil && caughtUp(s.CachedInfo().Cluster) {
				break
			}
			if wait := pause(ctx, 50*time.Millisecond); wait != nil {
				return fmt.Errorf("replicas of %s: %w", name, errors.Join(wait, err))
			}
		}
	}
	return nil
}

func caughtUp(c *jetstream.ClusterInfo) bool {
	if c == nil || c.Leader == "" {
		return false
	}
	for _, r := range c.Replicas {
		if r.Offline || !r.Current {
			return false
		}
	}
	return true
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Faults of the streams and buckets: each is deleted while everything works, or is full.

// lost is a stream, or the one below a bucket, that is deleted.
func lost(of func(wire.Names) string) func(context.Context, *world, *injection) error {
	return func(ctx context.Context, w *world, in *injection) error {
		name := of(wire.Names{})
		in.on = name
		js, err := jetstream.New(w.load.doors[0])
		if err != nil {
			return fmt.Errorf("delete %s: %w", name, err)
		}
		in.begins()
		return w.deleteStream(ctx, js, name)
	}
}

func (w *world) deleteStream(ctx context.Context, js jetstream.JetStream, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := js.DeleteStream(ctx, name); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// bucket is the name of the stream below a bucket.
func bucket(of func(wire.Names) string) func(wire.Names) string {
	return func(n wire.Names) string { return "KV_" + of(n) }
}

// loseTasks deletes the task stream. What no partition's owner has read of it is lost, as
// docs/decisions/009-ground.md says: so arrivals stop until all that was accepted has been
// read. It is in hand then, and goes on.
func loseTasks(ctx context.Context, w *world, in *injection) error {
	w.load.rate.Store(0)
	defer w.load.rate.Store(int64(w.rate))
	if err := w.allRead(ctx); err != nil {
		return err
	}
	return lost(wire.Names.StreamTasks)(ctx, w, in)
}

// allRead waits until every submission has its answer, and all that was accepted is stored:
// a partition is read in order, so one more task in each tells.
func (w *world) allRead(ctx context.Context) error {
	if err := w.await(ctx, "submissions without an answer", func(context.Context) (bool, error) { return w.load.open.Load() == 0, nil }); err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, partitions)
	for partition := range partitions {
		wg.Go(func() {
			id, err := w.load.submitTo(ctx, partition)
			if err != nil {
				errs[partition] = err
				return
			}
			errs[partition] = w.await(ctx, "delivery "+id+" is not read", func(ctx context.Context) (bool, error) {
				_, err := w.view(ctx, partition, id)
				return err == nil, err
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// loseEvents deletes the event stream, when what it has told was read: the end of a task
// that it had confirmed is not told again.
func loseEvents(ctx context.Context, w *world, in *injection) error {
	nc := w.load.doors[0]
	// What is told between the reading and the deletion is heard as it passes.
	heard := make(chan *nats.Msg, 1<<16)
	sub, err := nc.ChanSubscribe(eventSubjects(), heard)
	if err != nil {
		return fmt.Errorf("hear the events: %w", err)
	}
	told, err := w.tellings(ctx)
	if err != nil {
		return errors.Join(err, sub.Unsubscribe())
	}
	if err := errors.Join(lost(wire.Names.StreamEvents)(ctx, w, in), sub.Unsubscribe()); err != nil {
		return err
	}
	for len(heard) > 0 {
		m := <-heard
		if err := noteData(m.Subject, m.Data, told); err != nil {
			return err
		}
	}
	if w.told == nil {
		w.told = map[string]core.State{}
	}
	maps.Copy(w.told, told)
	return nil
}

// fullSpare is what a stream that is made full has left for each submission of a second:
// all of it is used up within a second or so, and not while it is made so.
const fullSpare = 200

// fullStream lets the task stream be no larger than it is. What all have finished goes from it
// by itself then, so it takes submissions again before it is as large as before.
func fullStream(ctx context.Context, w *world, in *injection) error {
	name := wire.Names{}.StreamTasks()
	in.on = name
	js, err := jetstream.New(w.load.doors[0])
	if err != nil {
		return fmt.Errorf("fill %s: %w", name, err)
	}
	before, err := w.bound(ctx, js, name, 0)
	if err != nil {
		return err
	}
	for full := false; !full && err == nil; {
		if full, err = w.refuses(ctx, js, name); err == nil && !full { // there was room made meanwhile
			_, err = w.bound(ctx, js, name, 0)
		}
	}
	in.begins()
	if err == nil {
		err = pause(ctx, in.hold)
	}
	_, freed := w.bound(context.WithoutCancel(ctx), js, name, before)
	return errors.Join(err, freed)
}

// fullWait is how long submissions may take to fill what was left.
const fullWait = 3 * time.Second

// refuses waits until a stream with little room takes nothing; false: it has room again.
func (w *world) refuses(ctx context.Context, js jetstream.JetStream, name string) (bool, error) {
	last := uint64(0)
	for until := time.Now().Add(fullWait); time.Now().Before(until); {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return false, fmt.Errorf("fill %s: %w", name, err)
		}
		room, bytes := s.CachedInfo().Config.MaxBytes-int64(s.CachedInfo().State.Bytes), s.CachedInfo().State.Bytes
		if room > int64(w.rate)*fullSpare {
			return false, nil
		}
		if bytes == last {
			return true, nil
		}
		last = bytes
		if err := pause(ctx, 10*lookEvery); err != nil {
			return false, err
		}
	}
	return false, nil
}

// bound gives a stream another bound (0: what it holds, and a little), and returns the one before.
func (w *world) bound(ctx context.Context, js jetstream.JetStream, name string, bytes int64) (before int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("bound of %s: %w", name, err)
	}
	config := s.CachedInfo().Config
	before = config.MaxBytes
	if config.MaxBytes = bytes; bytes == 0 {
		config.MaxBytes = int64(s.CachedInfo().State.Bytes) + int64(w.rate)*fullSpare
	}
	if _, err := js.UpdateStream(ctx, config); err != nil {
		return 0, fmt.Errorf("bound of %s: %w", name, err)
	}
	return before, nil
}

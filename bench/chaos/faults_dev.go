package main

import (
	"context"
	"errors"
	"syscall"
)

// Faults of `duly dev`: all roles, the NATS server and SQLite in one process.

func killDev(ctx context.Context, w *world, in *injection) error {
	return killed(ctx, in, w.role("dev"))
}

func stopDev(ctx context.Context, w *world, in *injection) error {
	return frozen(ctx, in, w.role("dev"))
}

// restartDev ends it as an operator does.
func restartDev(ctx context.Context, w *world, in *injection) error {
	p := w.role("dev")
	in.on = p.name
	return errors.Join(p.end(syscall.SIGTERM), pause(ctx, in.hold), p.start())
}

// fullDev leaves it no room, for its streams and its tables both, and restarts it
// when there is room.
func fullDev(ctx context.Context, w *world, in *injection) error {
	p := w.role("dev")
	in.on = "disk of dev"
	err := errors.Join(w.devDisk.fill(), pause(ctx, in.hold), w.devDisk.free())
	return errors.Join(err, p.end(syscall.SIGKILL), p.start())
}

func floodKillDev(ctx context.Context, w *world, in *injection) error {
	w.load.rate.Store(int64(w.rate * floodFactor))
	defer w.load.rate.Store(int64(w.rate))
	if err := pause(ctx, in.hold); err != nil {
		return err
	}
	in.hold /= 4
	return killDev(ctx, w, in)
}

// upgradeDev goes back to the older binary and then forward again.
func upgradeDev(ctx context.Context, w *world, in *injection) error {
	p := w.role("dev")
	in.on = "older, then newer"
	if err := w.restart(ctx, p, w.programs.older); err != nil {
		return err
	}
	return errors.Join(pause(ctx, in.hold), w.restart(ctx, p, w.programs.newer))
}

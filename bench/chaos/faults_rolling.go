package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// Planned work: restarts of everything, one after the other, and an upgrade in
// place with both versions side by side.

// overlap is how long both versions of an upgrade run side by side.
const overlap = time.Second

// rollingRestart asks every process to end, one after the other, and starts it
// again; the next one waits until it is ready.
func rollingRestart(ctx context.Context, w *world, in *injection) error {
	in.on = "all roles, agents"
	for _, p := range append(w.everyRole(), w.agents...) {
		if err := w.restart(ctx, p, ""); err != nil {
			return err
		}
	}
	return nil
}

// upgrade replaces the newer binary by the older one in one scheduler, one
// supervisor and the ingest, lets both work side by side, and then upgrades them.
func upgrade(ctx context.Context, w *world, in *injection) error {
	in.on = "older beside newer"
	list := []*process{one(in, w.schedulers()), one(in, w.supervisors()), w.role("ingest")}
	for _, p := range list {
		if err := w.restart(ctx, p, w.programs.older); err != nil {
			return err
		}
	}
	if err := pause(ctx, overlap); err != nil {
		return err
	}
	for _, p := range list {
		if err := w.restart(ctx, p, w.programs.newer); err != nil {
			return err
		}
	}
	return nil
}

// restart ends a process as an operator does, starts it with a program (empty:
// the same), and waits until it is ready.
func (w *world) restart(ctx context.Context, p *process, program string) error {
	if err := p.end(syscall.SIGTERM); err != nil {
		return err
	}
	if program != "" {
		p.args[0] = program
	}
	if err := p.start(); err != nil {
		return err
	}
	return w.awaitReady(ctx, p)
}

// readyMax is how long a process may take to be ready.
const readyMax = 60 * time.Second

func (w *world) awaitReady(ctx context.Context, p *process) error {
	limit := time.Now().Add(readyMax)
	for !p.works(ctx) {
		if time.Now().After(limit) {
			return fmt.Errorf("%s: not ready after %v", p.name, readyMax)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

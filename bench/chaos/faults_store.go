package main

import (
	"context"
	"errors"
	"syscall"
)

// Faults of the database and of the disks.

// killPostgres ends the server at once and starts it again, which recovers it
// from its log.
func killPostgres(ctx context.Context, w *world, in *injection) error {
	in.on = "postgres"
	return errors.Join(w.pg.Crash(), pause(ctx, in.hold), w.pg.Restart())
}

// fullPostgres leaves the database no room. The server that cannot write its log
// ends itself; then it is started again when there is room.
func fullPostgres(ctx context.Context, w *world, in *injection) error {
	in.on = "disk of postgres"
	err := errors.Join(w.dbDisk.fill(), pause(ctx, in.hold), w.dbDisk.free())
	if w.pg.Running() {
		in.on += " (it lived)"
		return err
	}
	in.on += " (it ended)"
	return errors.Join(err, w.pg.Restart())
}

// fullNATS leaves the NATS server no room. A server that cannot write switches
// its streams off and needs a restart, as its manual says, when there is room.
func fullNATS(ctx context.Context, w *world, in *injection) error {
	in.on = "disk of nats"
	err := errors.Join(w.natsDisk.fill(), pause(ctx, in.hold), w.natsDisk.free())
	return errors.Join(err, w.nats[0].end(syscall.SIGTERM), w.nats[0].start())
}

package main

import (
	"context"
	"time"
)

// Faults of the network between the processes and NATS, and between them and
// PostgreSQL. Each hits one process's link or, every third time, all of them.

// slowBy is how late everything on a slow link is, each way and each piece.
const slowBy = 100 * time.Millisecond

// broken breaks links for the hold.
func broken(ctx context.Context, in *injection, links []*namedLink, how func(*link)) error {
	if in.pick%3 != 0 {
		links = []*namedLink{one(in, links)}
	}
	for _, k := range links {
		in.on += k.name + " "
		how(k.link)
	}
	if len(links) > 2 {
		in.on = "all"
	}
	err := pause(ctx, in.hold)
	for _, k := range links {
		k.whole()
	}
	return err
}

func cutNATS(ctx context.Context, w *world, in *injection) error {
	return broken(ctx, in, w.natsLinks, (*link).cut)
}

func slowNATS(ctx context.Context, w *world, in *injection) error {
	return broken(ctx, in, w.natsLinks, slowed)
}

func halfNATS(ctx context.Context, w *world, in *injection) error {
	return broken(ctx, in, w.natsLinks, (*link).halve)
}

func cutPostgres(ctx context.Context, w *world, in *injection) error {
	return broken(ctx, in, w.dbLinks, (*link).cut)
}

func slowPostgres(ctx context.Context, w *world, in *injection) error {
	return broken(ctx, in, w.dbLinks, slowed)
}

func halfPostgres(ctx context.Context, w *world, in *injection) error {
	return broken(ctx, in, w.dbLinks, (*link).halve)
}

func slowed(k *link) { k.slow(slowBy) }

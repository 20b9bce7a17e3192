package main

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

type taskStreamsCmd struct {
	Streams   int           `arg:"" help:"How many there are to be, 1 to 16."`
	Namespace string        `name:"namespace" env:"DULY_NAMESPACE" default:"duly" help:"What the names on NATS begin with."`
	Wait      time.Duration `default:"15s" help:"How long to wait for schedulers that have ended: the lease of one that was killed runs out."`
	Keep      time.Duration `name:"stream-max-age" env:"DULY_STREAM_MAX_AGE" default:"72h" help:"Streams that are no longer used and have taken nothing for so long are removed, as of serve. 0: 24h."`

	config.Links `embed:""`
}

// Run changes the number of task streams.
func (c *taskStreamsCmd) Run(ctx context.Context, std streams) error {
	return node.ChangeTaskStreams(ctx, node.StreamsChange{
		Links: c.Links, Namespace: c.Namespace, To: c.Streams, Wait: c.Wait, Keep: c.Keep,
		Tell: func(format string, args ...any) { fmt.Fprintf(std.out, format+"\n", args...) },
	})
}

// acceptWithin is how long accept-loss waits for NATS.
const acceptWithin = 10 * time.Second

type acceptLossCmd struct {
	Stream string `arg:"" help:"The stream, as the alert names it."`

	natsLinks
}

// Run ends the alert about what a stream lacks.
func (c *acceptLossCmd) Run(ctx context.Context, std streams) error {
	conn, err := c.dialWithin(ctx, acceptWithin, "duly accept-loss")
	if err != nil {
		return err
	}
	defer conn.Close()
	n, err := conn.AcceptLoss(ctx, c.Stream)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: %d missing messages accepted\n", c.Stream, n)
	return err
}

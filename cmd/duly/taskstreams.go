package main

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/wire"
)

type taskStreamsCmd struct {
	Streams   int           `arg:"" help:"How many there are to be, 1 to 16."`
	Namespace string        `name:"namespace" env:"DULY_NAMESPACE" default:"duly" help:"What the names on NATS begin with."`
	Wait      time.Duration `default:"15s" help:"How long to wait for schedulers that have ended: the lease of one that was killed runs out."`
	Keep      time.Duration `name:"stream-max-age" env:"DULY_STREAM_MAX_AGE" default:"72h" help:"Streams that are no longer used and have taken nothing for so long are removed, as of serve. 0: 24h."`

	config.Links `embed:""`
}

// Validate is kong's.
func (c *taskStreamsCmd) Validate() error {
	if c.Streams < 1 || c.Streams > wire.TaskStreamsMax {
		return fmt.Errorf("streams: %d, want 1 to %d", c.Streams, wire.TaskStreamsMax)
	}
	if c.Wait < 0 || c.Keep < 0 {
		return fmt.Errorf("wait, stream-max-age: %v, %v, want 0 or more", c.Wait, c.Keep)
	}
	return nil
}

// Run changes the number of task streams.
func (c *taskStreamsCmd) Run(ctx context.Context, std streams) error {
	return node.ChangeTaskStreams(ctx, node.StreamsChange{
		Links: c.Links, Namespace: c.Namespace, To: c.Streams, Wait: c.Wait, Keep: c.Keep,
		Tell: func(format string, args ...any) { fmt.Fprintf(std.out, format+"\n", args...) },
	})
}

type acceptLossCmd struct {
	Stream string `arg:"" help:"The stream, as the alert names it."`
	reasoned
}

// Run ends the alert about what a stream lacks.
func (c *acceptLossCmd) Run(ctx context.Context, std streams) error {
	loss, data, err := answered[struct{ Messages uint64 }](c.change(ctx, std, pathOf("streams", c.Stream, "accept-loss"), show.Object{}))
	if err != nil {
		return err
	}
	return c.said(std, data, lossColumns, "%s: %d missing messages accepted", c.Stream, loss.Messages)
}

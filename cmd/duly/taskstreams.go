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

	config.Links `embed:""`
}

// Run changes the number of task streams.
func (c *taskStreamsCmd) Run(ctx context.Context, std streams) error {
	return node.ChangeTaskStreams(ctx, node.StreamsChange{
		Links: c.Links, Namespace: c.Namespace, To: c.Streams, Wait: c.Wait,
		Tell: func(format string, args ...any) { fmt.Fprintf(std.out, format+"\n", args...) },
	})
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
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

type acceptLossCmd struct {
	Stream string `arg:"" help:"The stream, as the alert names it."`
	Reason string `help:"Why; it is kept in the audit trail."`
	server
}

// Run ends the alert about what a stream lacks.
func (c *acceptLossCmd) Run(ctx context.Context, std streams) error {
	reason, err := reasonOf(std, c.Reason, true)
	if err != nil {
		return err
	}
	data, err := c.send(ctx, http.MethodPost, pathOf("streams", c.Stream, "accept-loss"), show.Object{"reason": reason}, nil)
	if err != nil {
		return err
	}
	var loss struct {
		Messages uint64 `json:"messages"`
	}
	if err := json.Unmarshal(data, &loss); err != nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	return c.said(std, data, lossColumns, "%s: %d missing messages accepted", c.Stream, loss.Messages)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/shadow"
)

// shadowCmd compares an agent with one that has no effects.
type shadowCmd struct {
	Agent  string `required:"" help:"Name of the agent whose commands are copied, as plans have it. Nothing changes for it."`
	Shadow string `required:"" help:"Name of the agent that gets the copies. It must be one without effects, and every instance must say so: duly.DryRun in Go, duly_dry_run=1 in the metadata of a NATS micro service elsewhere."`

	For      time.Duration `default:"1m" help:"How long commands are copied."`
	Count    int           `help:"End when so many are compared."`
	Percent  int           `default:"100" help:"Percent of the commands that are copied."`
	InFlight int           `default:"256" help:"Commands without both answers at a time; one more is not copied."`
	Ignore   []string      `help:"What may differ in results, as JSON pointers, in which * is any one member or element: /Number,/lines/*/at."`
	Kept     int           `default:"20" help:"Differences that are shown; all are counted."`
	Values   bool          `help:"Show the values that differ, which may be private, and not only where they are."`

	Allow   int  `help:"Differences that are no failure."`
	AtLeast int  `default:"1" help:"Fail if fewer commands were compared."`
	JSON    bool `name:"json" help:"Print JSON."`

	natsLinks
	Timeout time.Duration `default:"10s" help:"How long to wait for NATS."`
}

// Run compares, and fails if what they answer differs, or too little could be compared.
func (c *shadowCmd) Run(ctx context.Context, std streams) error {
	if c.Allow < 0 || c.AtLeast < 0 {
		return misuse("allow, at-least: %d, %d, want 0 or more", c.Allow, c.AtLeast)
	}
	conn, err := c.dialWithin(ctx, c.Timeout, "duly shadow")
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, end := conn.UntilDenied(ctx, micro.APIPrefix+".INFO.")
	report, err := shadow.Run(ctx, conn.NATS(), shadow.Options{
		Names: conn.Names(), Agent: c.Agent, Shadow: c.Shadow, For: c.For, Count: c.Count, Percent: c.Percent, InFlight: c.InFlight,
		Kept: c.Kept, Ignore: c.Ignore, Values: c.Values,
	})
	err = end(err)
	switch {
	case errors.Is(err, shadow.ErrNotDry):
		return stateError{err}
	case errors.Is(err, shadow.ErrNoAgent):
		return awayError{err}
	case err != nil:
		return err
	}
	return told(std, c.JSON, report, c.print, report.Different > c.Allow || report.Compared < c.AtLeast)
}

// print prints the differences, and the counts.
func (c *shadowCmd) print(page show.Page, report *shadow.Report) error {
	for _, d := range report.Differences {
		fmt.Fprintf(page.W, "%s, step %s, attempt %d: %s, the shadow: %s\n", d.Task, d.Step, d.Attempt, d.Real, d.Shadow)
		for _, p := range d.At {
			line := p.Pointer
			if line == "" {
				line = "the whole result"
			}
			if c.Values {
				line += ": " + valueOr(p.Real) + ", the shadow: " + valueOr(p.Shadow)
			}
			paragraph(page, "at  ", line)
		}
	}
	if more := report.Different - len(report.Differences); more > 0 {
		fmt.Fprintf(page.W, "and %d more\n", more)
	}
	var notes []string
	for _, n := range []struct {
		count int
		what  string
	}{{report.Unclear, "not clear"}, {report.Dropped, "not copied for want of room"}, {report.Missed, "messages missed"}} {
		if n.count > 0 {
			notes = append(notes, fmt.Sprintf("; %d %s", n.count, n.what))
		}
	}
	_, err := fmt.Fprintf(page.W, "%s: %s, %d copied to %s, %d compared: %d the same, %d different%s\np50 %.1f ms, the shadow %.1f ms; p99 %.1f ms, the shadow %.1f ms\n",
		report.Agent, say.Count(int64(report.Seen), "command"), report.Copied, report.Shadow, report.Compared, report.Same, report.Different, strings.Join(notes, ""),
		report.RealMS.P50, report.ShadowMS.P50, report.RealMS.P99, report.ShadowMS.P99)
	return err
}

func valueOr(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}

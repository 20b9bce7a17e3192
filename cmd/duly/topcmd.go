package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/cmd/duly/internal/top"
	"duly.dev/duly/internal/say"
)

type statusCmd struct{ server }

var statusColumns = []string{"at", "errors.n", "groups.n", "at_risk.n", "signals.tasks.n", "signals.steps.n", "signals.near.n", "~signals.since"}

// Run prints the overview.
func (c *statusCmd) Run(ctx context.Context, std streams) error {
	data, err := c.read(ctx, pathOf("overview"), nil)
	if err != nil {
		return err
	}
	var o top.Overview
	return c.show(std.out, data, "", statusColumns, &o, func(w io.Writer) {
		if o.Trouble != "" {
			fmt.Fprintln(w, say.Of("top.stale", "at", o.At.Local().Format(time.DateTime), "error", show.Clean(o.Trouble)))
		}
		top.Status(w, &o)
	})
}

type topCmd struct {
	Every time.Duration `default:"2s" help:"How often to look, 500ms or more."`
	server
}

// everyLeast is how seldom an answer must be asked for at least: a node reads what is live once for all who look.
const everyLeast = 500 * time.Millisecond

// Run shows the live view until it is left.
func (c *topCmd) Run(ctx context.Context, std streams) error {
	if c.Every < everyLeast {
		return misuse("every: %v, want %v or more", c.Every, everyLeast)
	}
	in, ok1 := std.given().(*os.File)
	out, ok2 := show.Under(std.out).(*os.File)
	if !ok1 || !ok2 || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return misuse("top needs a terminal; `duly failures list`, `duly agents` and `duly op list` say the same for programs")
	}
	conn, err := c.client()
	if err != nil {
		return err
	}
	return top.Run(ctx, top.Options{Client: conn, Every: c.Every, In: in, Out: out, Plain: os.Getenv("NO_COLOR") != ""})
}

package main

import (
	"context"
	"fmt"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
)

type tailCmd struct {
	Event  string `help:"Only these: begun, step_passed, step_failed, undo_begun, step_undone, undo_failed, resubmitted, ended, refused or lost."`
	Type   string `help:"Only this type."`
	Label  string `help:"Only tasks with this label, key=value."`
	Status string `help:"Only changes to this state: pending, processing, processed, undoing, undone or error."`
	Since  string `help:"Go on after this event: its id in the stream, as an interrupted tail says it."`
	server
}

// eventColumns are those of a line, and of CSV.
var eventColumns = []string{"at", "event", "type", "id", "status", "step", "error"}

// Run prints what becomes of tasks, as it happens, until it is interrupted.
func (c *tailCmd) Run(ctx context.Context, std streams) error {
	conn, err := c.client()
	if err != nil {
		return err
	}
	r := client.Request{Path: pathOf("events"), Query: queryOf(map[string]string{"event": c.Event, "type": c.Type, "label": c.Label, "status": c.Status}), Header: map[string]string{client.HeaderLast: c.Since}}
	page, first, last := show.On(std.out), true, ""
	err = conn.Follow(ctx, r, func(e client.Event) error {
		if e.ID != "" {
			last = e.ID
		}
		switch c.Output {
		case show.JSON:
			return show.Raw(std.out, show.JSON, e.Data)
		case show.YAML:
			fmt.Fprintln(std.out, "---")
			return show.Raw(std.out, show.YAML, e.Data)
		}
		var row show.Object
		if err := show.Decode(e.Data, &row); err != nil {
			return err
		}
		if c.Output == show.CSV {
			rows := []show.Object{row}
			if first {
				first = false
				return show.Records(std.out, eventColumns, rows)
			}
			return show.More(std.out, eventColumns, rows)
		}
		page.Line(eventColumns, row)
		return nil
	}, func(why error) {
		if why != nil {
			fmt.Fprintln(std.err, "duly: the events broke off, asking again:", why)
			return
		}
		fmt.Fprintln(std.err, "duly: the events go on")
	})
	if err == nil && last != "" {
		fmt.Fprintln(std.err, "duly: it goes on with --since", show.Clean(last))
	}
	return err
}

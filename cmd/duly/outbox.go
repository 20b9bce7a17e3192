package main

import (
	"context"
	"encoding/json"
	"fmt"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/schema/postgres"
)

type outboxCmd struct {
	CreateTable outboxCreateCmd  `cmd:"" name:"create-table" help:"Make the table, or print the SQL that does."`
	List        outboxListCmd    `cmd:"" help:"List what was refused, and with --waiting also what is not relayed yet."`
	Retry       outboxRetryCmd   `cmd:"" help:"Have what was refused relayed again."`
	Discard     outboxDiscardCmd `cmd:"" help:"Remove what was refused: its task never is."`
}

// outboxDB is the database with the table.
type outboxDB struct {
	DatabaseURL string `name:"database-url" env:"DATABASE_URL" help:"Database with the outbox: postgres://…"`
}

// with opens the outbox for do.
func (d *outboxDB) with(ctx context.Context, do func(*postgres.Outbox) error) error {
	if d.DatabaseURL == "" {
		return misuse("database-url: not given")
	}
	o, err := postgres.OpenOutbox(ctx, d.DatabaseURL)
	if err != nil {
		return useError{err}
	}
	defer o.Close()
	return do(o)
}

type outboxCreateCmd struct {
	outboxDB
	Print bool `help:"Print the SQL, and change nothing: for your own migrations."`
}

// Run makes the table.
func (c *outboxCreateCmd) Run(ctx context.Context, std streams) error {
	if c.Print {
		_, err := fmt.Fprint(std.out, postgres.OutboxSQL)
		return err
	}
	return c.with(ctx, func(o *postgres.Outbox) error {
		if err := o.Create(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintln(std.out, "the table duly_outbox is there")
		return err
	})
}

// outboxColumns are the table's; a test holds them to postgres.OutboxRow.
var outboxColumns = []string{"number", "type", "task", "written", "~tries", "~refused", "code", "reason"}

type outboxListCmd struct {
	outboxDB
	Waiting bool   `help:"Also what waits."`
	After   int64  `help:"Only rows after this number: the last one of a page."`
	Limit   int    `default:"100" help:"So many at most, up to 1000."`
	Output  string `short:"o" enum:"text,json,yaml,csv" default:"text" help:"text, json, yaml or csv."`
}

// outboxListMax bounds a page.
const outboxListMax = 1000

// Run lists rows.
func (c *outboxListCmd) Run(ctx context.Context, std streams) error {
	if c.Limit < 1 || c.Limit > outboxListMax {
		return misuse("limit: %d, want 1 to %d", c.Limit, outboxListMax)
	}
	return c.with(ctx, func(o *postgres.Outbox) error {
		rows, err := o.List(ctx, c.After, c.Waiting, c.Limit)
		if err != nil {
			return err
		}
		if rows == nil {
			rows = []postgres.OutboxRow{}
		}
		data, err := json.Marshal(map[string]any{"submissions": rows})
		if err != nil {
			return fmt.Errorf("output: %w", err)
		}
		s := server{Output: c.Output}
		if err := s.list(std, data, "submissions", "nothing", outboxColumns); err != nil {
			return err
		}
		if len(rows) == c.Limit && c.Output == show.Text {
			fmt.Fprintf(std.out, "there may be more: --after %d\n", rows[len(rows)-1].Number)
		}
		return nil
	})
}

type outboxRetryCmd struct {
	outboxDB
	Numbers []int64 `arg:"" optional:"" help:"Of the rows, as list has them."`
	All     bool    `help:"All that were refused."`
}

// Run has rows relayed again.
func (c *outboxRetryCmd) Run(ctx context.Context, std streams) error {
	if c.All == (len(c.Numbers) > 0) {
		return misuse("want numbers of rows, or --all")
	}
	return c.with(ctx, func(o *postgres.Outbox) error {
		n, err := o.Again(ctx, c.All, c.Numbers)
		return changed(std, n, len(c.Numbers), "relayed again", err)
	})
}

type outboxDiscardCmd struct {
	outboxDB
	Numbers []int64 `arg:"" help:"Of the rows, as list has them."`
}

// Run removes rows.
func (c *outboxDiscardCmd) Run(ctx context.Context, std streams) error {
	return c.with(ctx, func(o *postgres.Outbox) error {
		n, err := o.Discard(ctx, c.Numbers)
		return changed(std, n, len(c.Numbers), "removed", err)
	})
}

// changed says how many rows there were; fewer than were named is an error.
func changed(std streams, n int64, named int, what string, err error) error {
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "%d %s\n", n, what)
	if int(n) < named {
		return stateError{fmt.Errorf("not there, or not refused: %d of %s", named-int(n), say.Count(int64(named), "named row"))}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
)

// booksCmd compares the journal with the books of the services.
type booksCmd struct {
	Since time.Duration `default:"24h" help:"Compare effects and tasks of so long ago and younger."`
	JSON  bool          `name:"json" help:"Print JSON."`

	config.Config `embed:""`
}

// Run compares, and fails where something does not agree or is not known.
func (c *booksCmd) Run(ctx context.Context, std streams) error {
	if c.Since <= 0 || c.Since > 365*24*time.Hour {
		return fmt.Errorf("since: %v, want more than 0 and at most 8760h", c.Since)
	}
	report, err := node.CompareBooks(ctx, c.Config, time.Now().Add(-c.Since))
	if err != nil {
		return fmt.Errorf("books: %w", err)
	}
	if c.JSON {
		if err := writeJSON(std.out, report); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(std.out, "%s\n", report.Sentence())
		for _, a := range report.Agents {
			if a.Error != "" {
				fmt.Fprintf(std.out, "  %s: %s\n", show.Clean(a.Agent), show.Clean(a.Error))
			}
		}
		for _, g := range report.Ghosts {
			fmt.Fprintf(std.out, "  %s  %s at %s, task %s of type %s: %s\n", g.Kind, show.Clean(g.Key), show.Clean(g.Agent), show.Clean(g.Task), show.Clean(g.Type), g.Text)
		}
	}
	if !report.Closed {
		return errUnclean
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"duly.dev/duly/cmd/duly/internal/show"
)

// deprecateColumns are what a change of a version's mark says.
var deprecateColumns = []string{"name", "version", "deprecated", "newest"}

type planDeprecateCmd struct {
	Name    string `arg:"" help:"Name of the plan."`
	Version int64  `arg:"" help:"The version."`
	Undo    bool   `help:"Let new submissions take it again."`
	Reason  string `help:"Why; it is kept in the audit trail."`
	server
}

// Run marks a version, or takes the mark away.
func (c *planDeprecateCmd) Run(ctx context.Context, std streams) error {
	reason, err := reasonOf(std, c.Reason, true)
	if err != nil {
		return err
	}
	data, err := c.send(ctx, http.MethodPost, pathOf("plans", c.Name, strconv.FormatInt(c.Version, 10), "deprecate"), show.Object{"undo": c.Undo, "reason": reason}, nil)
	if err != nil {
		return err
	}
	var a struct {
		Newest int64 `json:"newest"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	said := fmt.Sprintf("plan %s version %d is deprecated", c.Name, c.Version)
	if c.Undo {
		said = fmt.Sprintf("plan %s version %d is deprecated no more", c.Name, c.Version)
	}
	if a.Newest == 0 {
		return c.said(std, data, deprecateColumns, "%s; every version is, so a submission has to name one", said)
	}
	return c.said(std, data, deprecateColumns, "%s; new submissions take version %d", said, a.Newest)
}

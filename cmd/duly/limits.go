package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/internal/operate"
)

var limitColumns = []string{"agent", "concurrent", "granted", "rate", "~granted_rate", "wanted", "holders", "~since", "by", "reason"}

type limitsCmd struct {
	List   limitsListCmd   `cmd:"" default:"withargs" help:"List the limits of agents, and what of them is granted and wanted."`
	Set    limitsSetCmd    `cmd:"" help:"Bound what an agent gets, over all nodes: so many calls at a time, so many a second. It takes the place of the limit that there is."`
	Remove limitsRemoveCmd `cmd:"" help:"Let an agent have any number again."`
}

type limitsListCmd struct{ server }

// Run lists the limits.
func (c *limitsListCmd) Run(ctx context.Context, std streams) error {
	data, err := c.read(ctx, pathOf("limits"), nil)
	if err != nil {
		return err
	}
	return c.list(std, data, "limits", "no limit", limitColumns)
}

// limitBody is a request for a limit.
type limitBody struct {
	Concurrent int     `json:"concurrent,omitempty"`
	Rate       float64 `json:"rate,omitempty"`
	Reason     string  `json:"reason"`
}

type limitsSetCmd struct {
	Agent      string `arg:"" help:"Name of the agent."`
	Concurrent int    `help:"Calls at a time, 1 to 1000000 (default: any number)."`
	Rate       string `help:"Calls a second, or 6/min, or 100/h; thousandths of one a second count (default: any number)."`
	Reason     string `help:"Why; it is kept in the audit trail."`
	server
}

// Run sets a limit.
func (c *limitsSetCmd) Run(ctx context.Context, std streams) error {
	rate, err := rateOf(c.Rate)
	if err != nil {
		return err
	}
	if c.Concurrent == 0 && rate == 0 {
		return misuse("nothing to bound: want --concurrent, --rate or both")
	}
	reason, err := reasonOf(std, c.Reason, true)
	if err != nil {
		return err
	}
	data, err := c.send(ctx, http.MethodPut, pathOf("limits", c.Agent), limitBody{c.Concurrent, rate, reason}, nil)
	if err != nil {
		return err
	}
	var l operate.Limit
	if err := json.Unmarshal(data, &l); err != nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	var says []string
	if l.Concurrent > 0 {
		says = append(says, fmt.Sprintf("%d calls at a time", l.Concurrent))
	}
	if l.Rate > 0 {
		says = append(says, fmt.Sprintf("%g calls a second", l.Rate))
	}
	return c.said(std, data, limitColumns, "agent %s gets %s at most (duly limits remove %s ends it)", c.Agent, strings.Join(says, " and "), c.Agent)
}

// rateOf reads calls a second: a number, or one for a second, a minute or an hour.
func rateOf(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, per, _ := strings.Cut(text, "/")
	seconds, known := map[string]float64{"": 1, "s": 1, "min": 60, "h": 3600}[per]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || !(n > 0) {
		return 0, misuse("rate: %q, want calls a second such as 100 or 0.5, or 6/min, or 100/h", text)
	}
	return n / seconds, nil
}

type limitsRemoveCmd struct {
	Agent  string `arg:"" help:"Name of the agent."`
	Reason string `help:"Why; it is kept in the audit trail."`
	server
}

// Run removes a limit.
func (c *limitsRemoveCmd) Run(ctx context.Context, std streams) error {
	reason, err := reasonOf(std, c.Reason, true)
	if err != nil {
		return err
	}
	if _, err := c.ask(ctx, client.Request{Method: http.MethodDelete, Path: pathOf("limits", c.Agent), Query: queryOf(map[string]string{"reason": reason})}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "agent %s has no limit any more\n", c.Agent)
	return err
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/operate"
)

// forecastCmd shows how likely the unfinished tasks make their deadlines.
type forecastCmd struct{ server }

// forecastSure is the chance from which on a step's tasks get no line of their own.
const forecastSure = 0.99

// Run lists the plans, those that will miss most deadlines first.
func (c *forecastCmd) Run(ctx context.Context, std streams) error {
	data, err := c.read(ctx, pathOf("forecast"), nil)
	if err != nil {
		return err
	}
	var f operate.Forecast
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	if err := c.list(std, data, "plans", "no task is unfinished", forecastColumns); err != nil || c.Output != show.Text {
		return err
	}
	for i := range f.Plans {
		p := &f.Plans[i]
		for _, s := range p.Steps {
			if s.Held == "" && s.Chance != nil && *s.Chance > forecastSure {
				continue
			}
			at, chance, held := "at step "+s.Step, "not known", ""
			if s.Step == "" {
				at = "that are being undone"
			}
			if s.Chance != nil {
				chance = fmt.Sprintf("%.0f %%", 100**s.Chance)
			}
			if s.Chance != nil && s.Unknown > 0 {
				chance += fmt.Sprintf(", not known of %d", s.Unknown)
			}
			if s.Held != "" {
				held = "; " + show.Clean(s.Held)
			}
			fmt.Fprintf(std.out, "%s version %d, %d tasks %s: chance to make the deadline %s%s\n", p.Type, p.Version, s.Tasks, at, chance, held)
		}
	}
	if int64(f.Sampled) < f.Tasks.N || f.Tasks.AtLeast {
		fmt.Fprintf(std.out, "estimated from %d tasks of %s\n", f.Sampled, show.Count(strconv.FormatInt(f.Tasks.N, 10), f.Tasks.AtLeast))
	}
	if f.More {
		fmt.Fprintln(std.out, "there may be plans that are not listed")
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/operate"
)

// forecastCmd shows how likely the unfinished tasks make their deadlines.
type forecastCmd struct{ server }

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
			if s.Miss >= 1 {
				at := "at step " + s.Step
				if s.Step == "" {
					at = "that are being undone"
				}
				fmt.Fprintf(std.out, "%s version %d: about %.0f of the %d tasks %s will miss their deadlines\n", p.Type, p.Version, s.Miss, s.Tasks, at)
			}
		}
	}
	if int64(f.Sampled) < f.Tasks.N {
		fmt.Fprintf(std.out, "of %d unfinished tasks %d were looked at\n", f.Tasks.N, f.Sampled)
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
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
	if err := c.list(std, data, "plans", say.Of("cli.no-unfinished"), forecastColumns); err != nil || c.Output != show.Text {
		return err
	}
	for i := range f.Plans {
		p := &f.Plans[i]
		for _, s := range p.Steps {
			if s.Miss >= 1 {
				id := "forecast.step"
				if s.Step == "" {
					id = "forecast.undoing"
				}
				fmt.Fprintln(std.out, say.Of(id, "plan", p.Type, "version", p.Version, "miss", fmt.Sprintf("%.0f", s.Miss), "n", s.Tasks, "step", s.Step))
			}
		}
	}
	if int64(f.Sampled) < f.Tasks.N {
		fmt.Fprintln(std.out, say.Of("forecast.sampled", "sampled", f.Sampled, "n", f.Tasks.N))
	}
	return nil
}

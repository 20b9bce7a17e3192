package main

import (
	"context"
	"fmt"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// forecastCmd shows how likely the unfinished tasks make their deadlines.
type forecastCmd struct{ server }

// forecastSure is the chance from which on a step's tasks get no line of their own.
const forecastSure = 0.99

// Run lists the plans, those that will miss most deadlines first.
func (c *forecastCmd) Run(ctx context.Context, std streams) error {
	f, data, err := answered[operate.Forecast](c.read(ctx, pathOf("forecast"), nil))
	if err != nil {
		return err
	}
	if err := c.list(std, data, "plans", say.Of("cli.no-unfinished"), forecastColumns); err != nil || c.Output != show.Text {
		return err
	}
	for i := range f.Plans {
		p := &f.Plans[i]
		for _, s := range p.Steps {
			if s.Held == "" && s.Chance != nil && *s.Chance > forecastSure {
				continue
			}
			id, chance, held := "forecast.step", say.Of("forecast.unknown"), ""
			if s.Step == "" {
				id = "forecast.undoing"
			}
			if s.Chance != nil {
				chance = fmt.Sprintf("%.0f %%", 100**s.Chance)
			}
			if s.Chance != nil && s.Unknown > 0 {
				chance += say.Of("forecast.unknown-of", "n", s.Unknown)
			}
			if s.Held != "" {
				held = "; " + show.Clean(s.Held)
			}
			fmt.Fprintln(std.out, say.Of(id, "plan", p.Type, "version", p.Version, "n", s.Tasks, "step", s.Step, "chance", chance, "held", held))
		}
	}
	if int64(f.Sampled) < f.Tasks.N || f.Tasks.AtLeast {
		fmt.Fprintln(std.out, say.Of("forecast.sampled", "sampled", f.Sampled, "n", f.Tasks))
	}
	if f.More {
		fmt.Fprintln(std.out, say.Of("forecast.more"))
	}
	return nil
}

package console

import (
	"context"
	"strings"
	"testing"

	"duly.dev/duly/internal/operate"
)

// chances is a forecast that does not change.
type chances operate.Forecast

// Forecast implements operate.Forecaster.
func (c chances) Forecast(context.Context) (operate.Forecast, error) { return operate.Forecast(c), nil }

// TestChances: the page of deadlines shows the chances by plan and step, and says what is an estimate.
func TestChances(t *testing.T) {
	cfg := fixedWorld().config()
	cfg.Forecaster = chances{
		Tasks: operate.Count{N: 52000, AtLeast: true}, Sampled: 1000,
		Plans: []operate.PlanForecast{{Type: "order", Version: 4, Tasks: 52000, Chance: new(0.89), P50MS: 900, P95MS: 4200,
			Steps: []operate.StepForecast{{Step: "charge", Tasks: 50000, Unknown: 700, Chance: new(0.9), Held: "step ship is paused until noon"}, {Tasks: 300, Chance: new(0.0)}}},
			{Type: "new", Version: 1, Tasks: 1, Unknown: 1, Steps: []operate.StepForecast{{Step: "x", Tasks: 1, Unknown: 1}}}}, More: true,
	}
	rec := get(t, as(operate.RoleViewer, newConsole(t, cfg)), Path+"risk")
	body := rec.Body.String()
	for _, want := range []string{"Chances of all unfinished tasks", "version 4", ">50,000<", ">90 % <", "not known of 700", "step ship is paused until noon", ">0 %<", "being undone", ">300<", ">not known<", "There may be plans that are not listed.", "900 ms, at most 4.2 s in 95 %", "not known yet", "Estimated from a sample: 1,000 of ≥ 52,000 unfinished tasks."} {
		if rec.Code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d, no %q", rec.Code, want)
		}
	}
}

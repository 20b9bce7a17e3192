package api

import (
	"context"

	"duly.dev/duly/internal/operate"
)

// forecastRoute serves the chances of the unfinished tasks.
func (a *api) forecastRoute(tag string) {
	register(a, route{method: "GET", path: "/v1/forecast", id: "getForecast", tag: tag, needs: operate.RoleViewer, summary: "How likely unfinished tasks make their deadlines",
		about: "By plan and step, of a sample of the unfinished tasks; all who ask within 5 seconds share one."},
		func(ctx context.Context, _ *struct{}) (operate.Forecast, error) {
			return a.ports.Forecaster.Forecast(ctx)
		})
}

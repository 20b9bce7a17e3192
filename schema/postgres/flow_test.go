package postgres_test

import (
	"context"

	"duly.dev/duly/internal/operate"
)

// What operators read of the flow, as patiently as the rest.

func (p patient) ParkedAt(ctx context.Context) (map[string][]operate.ParkedOf, error) {
	return retried(ctx, func() (map[string][]operate.ParkedOf, error) { return p.Store.(operate.FlowReader).ParkedAt(ctx) })
}

func (p patient) Parked(ctx context.Context, f operate.ParkedFilter) (operate.Parked, error) {
	return retried(ctx, func() (operate.Parked, error) { return p.Store.(operate.FlowReader).Parked(ctx, f) })
}

func (p patient) InFlight(ctx context.Context) (map[int]operate.Count, error) {
	return retried(ctx, func() (map[int]operate.Count, error) { return p.Store.(operate.FlowReader).InFlight(ctx) })
}

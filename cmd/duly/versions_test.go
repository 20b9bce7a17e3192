package main

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// marks are the versions that are deprecated.
type marks struct{ all core.Deprecations }

func (e *engine) versioning() operate.PlanControl {
	return &operate.Versioning{Store: &marks{}, Trail: e, Plans: e.Plans, Announce: func() error { return nil }, Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}
}

func (m *marks) Deprecated(context.Context) (core.Deprecations, error) { return m.all, nil }

func (m *marks) Deprecate(_ context.Context, name string, version int64, at core.Instant) error {
	m.all = slices.DeleteFunc(m.all, func(d core.Deprecation) bool { return d.Name == name && d.Version == version })
	if at != 0 {
		m.all = append(m.all, core.Deprecation{Name: name, Version: version, At: at})
	}
	return nil
}

package apitest

import (
	"context"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// versioning is the real thing over this world.
func (w *World) versioning() operate.PlanControl {
	return &operate.Versioning{Store: w, Desk: w.desk(), Plans: w.Plans, Announce: func() error { return nil }, Now: func() time.Time { return w.now() }}
}

// Deprecated implements operate.VersionStore.
func (w *World) Deprecated(context.Context) (marked core.Deprecations, err error) {
	err = w.do(func() error {
		marked = slices.Clone(w.Marked)
		return nil
	})
	return marked, err
}

// Deprecate implements operate.VersionStore.
func (w *World) Deprecate(_ context.Context, name string, version int64, at core.Instant) error {
	return w.do(func() error {
		w.Marked = slices.DeleteFunc(w.Marked, func(d core.Deprecation) bool { return d.Name == name && d.Version == version })
		if at != 0 {
			w.Marked = append(w.Marked, core.Deprecation{Name: name, Version: version, At: at})
		}
		return nil
	})
}

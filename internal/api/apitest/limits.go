package apitest

import (
	"context"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// limiting is operate.LimitControl over the limits of the world.
func (w *World) limiting() *operate.Limiting {
	return &operate.Limiting{Store: w, Desk: w.desk(), Plans: w.Plans, Announce: func() error { return nil }, Now: w.now}
}

// AgentLimits implements operate.LimitKeeper.
func (w *World) AgentLimits(context.Context) (all []operate.AgentLimit, err error) {
	err = w.do(func() error { all = slices.Clone(w.Bounds); return nil })
	return all, err
}

// PutLimit implements operate.LimitKeeper.
func (w *World) PutLimit(_ context.Context, l operate.AgentLimit) (stored bool, err error) {
	err = w.do(func() error {
		i := slices.IndexFunc(w.Bounds, func(is operate.AgentLimit) bool { return is.Agent == l.Agent })
		switch {
		case i < 0 && l.Revision == 1:
			w.Bounds, stored = append(w.Bounds, l), true
		case i >= 0 && w.Bounds[i].Revision == l.Revision-1:
			w.Bounds[i], stored = l, true
		}
		return nil
	})
	return stored, err
}

// DeleteLimit implements operate.LimitKeeper.
func (w *World) DeleteLimit(_ context.Context, agent string) error {
	return w.do(func() error {
		w.Bounds = slices.DeleteFunc(w.Bounds, func(l operate.AgentLimit) bool { return l.Agent == agent })
		return nil
	})
}

// Granted implements operate.LimitKeeper: of each limit, and of a key, a place is granted, and two are wanted.
func (w *World) Granted(context.Context, core.Instant) (all map[string]operate.Granted, err error) {
	err = w.do(func() error {
		all = map[string]operate.Granted{}
		for i := range w.Bounds {
			is := operate.Granted{Holders: 1, Wanted: 2, Places: 1}
			if w.Bounds[i].Key != "" {
				is.Keys, is.Busiest = 1, []operate.KeyGranted{{Key: "acme", Holders: 1, Wanted: 2, Places: 1}}
			}
			all[w.Bounds[i].Agent] = is
		}
		return nil
	})
	return all, err
}

package main

import (
	"context"
	"maps"

	"duly.dev/duly/dev"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
)

// compare holds the journal against the services' books as `duly books` does in production, and adds what only the
// services know here.
func (w *world) compare(ctx context.Context, store schema.Store, outcomes drone.Outcomes) (drone.Report, error) {
	kept := w.services.Books().ByAgent()
	if w.work != nil {
		more, err := w.work.byAgent(ctx, store)
		if err != nil {
			return drone.Report{}, err
		}
		maps.Copy(kept, more)
	}
	compared, err := dev.CompareBooks(ctx, store, partitions, kept)
	if err != nil {
		return drone.Report{}, err
	}
	found := w.services.Books().CheckBeside(w.load.accepted, outcomes)
	for i := range compared.Ghosts {
		g := &compared.Ghosts[i]
		found.Ghost(g.Kind == operate.GhostDoubled, g.Task, g.Key+" at "+g.Agent+": "+g.Text)
	}
	doubled := compared.Kinds[operate.GhostDoubled]
	found.Doubled, found.HalfDone = max(found.Doubled, int(doubled)), max(found.HalfDone, int(compared.Total-doubled)) // those that are not named count
	return found, nil
}

package storetest

import (
	"errors"

	"duly.dev/duly/internal/core"
)

// testDeprecated marks versions of plans and takes the mark away.
func testDeprecated(r *rig) {
	second := plan()
	second.Version = 2
	r.must(r.s.PutPlan(r.ctx, plan()))
	r.must(r.s.PutPlan(r.ctx, second))
	r.equal("none yet", len(get(r.s.Deprecated(r.ctx))(r)), 0)
	at := core.Instant(1_700_000_000_123_456)
	r.must(r.s.Deprecate(r.ctx, second.Name, 2, at))
	r.must(r.s.Deprecate(r.ctx, second.Name, 2, at+1)) // it keeps its time
	r.equal("marked", get(r.s.Deprecated(r.ctx))(r), core.Deprecations{{Name: second.Name, Version: 2, At: at}})
	r.must(r.s.PutPlan(r.ctx, second)) // the same again changes nothing
	r.equal("stored again", len(get(r.s.Deprecated(r.ctx))(r)), 1)
	r.equal("plans", len(get(r.s.Plans(r.ctx))(r)), 2)
	r.must(r.s.Deprecate(r.ctx, second.Name, 2, 0))
	r.equal("taken away", len(get(r.s.Deprecated(r.ctx))(r)), 0)
	for _, at := range []core.Instant{at, 0} {
		if err := r.s.Deprecate(r.ctx, second.Name, 3, at); !errors.Is(err, core.ErrNotFound) {
			r.Errorf("a version that is not stored: %v", err)
		}
	}
}

package storetest

import (
	"context"
	"errors"

	"duly.dev/duly/schema"
)

// roomProbes is how often a probe for room is tried: a connection may be cut off under each.
const roomProbes = 50

// testRoom: a database with room says so, where the dialect can tell.
func testRoom(r *rig) {
	store, ok := r.s.(interface{ ProbeRoom(context.Context) error })
	if !ok {
		return
	}
	var err error
	for range roomProbes {
		if err = store.ProbeRoom(r.ctx); err == nil || errors.Is(err, schema.ErrNotProbed) {
			return
		}
	}
	r.Error(err)
}

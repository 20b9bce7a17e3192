package sim

import (
	"context"
	"slices"

	"duly.dev/duly/internal/core"
)

// Deprecated returns the versions of plans that are marked.
func (m *MemStore) Deprecated(context.Context) (core.Deprecations, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.Marked), nil
}

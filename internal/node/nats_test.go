package node

import (
	"testing"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/natstest"
)

// startNATS runs a NATS server of its own until the test is over.
func startNATS(t testing.TB) *natsserver.Server {
	t.Helper()
	return natstest.Start(t, natsserver.Options{})
}

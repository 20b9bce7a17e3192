package node

import (
	"testing"

	"duly.dev/duly/dev/natsserver"
)

// startNATS runs a NATS server of its own until the test is over.
func startNATS(t testing.TB) *natsserver.Server {
	t.Helper()
	server, err := natsserver.Start(natsserver.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Package natstest gives tests NATS servers.
package natstest

import (
	"cmp"
	"testing"

	"duly.dev/duly/dev/natsserver"
)

// maxStore lets streams reserve more than a small disk has free: tests write little of it.
const maxStore = 64 << 30

// Start runs a server of its own until the test is over, in a folder of its own unless o names one. What keeps it from
// starting fails the test, and so does a stop that fails.
func Start(tb testing.TB, o natsserver.Options) *natsserver.Server {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	o.MaxStore = cmp.Or(o.MaxStore, maxStore)
	server, err := natsserver.Start(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

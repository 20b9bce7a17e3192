// Package pgtestdb gives tests databases of one throwaway PostgreSQL cluster per
// test process.
package pgtestdb

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"duly.dev/duly/internal/localpg"
)

// cluster is started by the first test that wants it. Stopping ends it; without
// that its watchdog does when this process is gone.
var cluster = sync.OnceValues(func() (*localpg.Cluster, error) {
	c, err := localpg.Start(localpg.Options{Settings: map[string]string{"max_connections": "200"}})
	if err == nil {
		running.Store(c)
	}
	return c, err
})

var running atomic.Pointer[localpg.Cluster]

// Stopping runs the tests of a package and then stops the cluster, if there is
// one: what is still there is a leak.
type Stopping struct{ M interface{ Run() int } }

// Run runs the tests and returns their exit code, or 1 when the cluster does not
// stop.
func (s Stopping) Run() int {
	code := s.M.Run()
	if c := running.Load(); c != nil {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "PostgreSQL for the tests:", err)
			return max(code, 1)
		}
	}
	return code
}

// URL is an empty database for this test alone.
func URL(tb testing.TB) string {
	tb.Helper()
	c, err := cluster()
	if err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	url, err := c.NewDatabase(context.Background())
	if err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	return url
}

// Package pgtestdb gives tests databases of one throwaway PostgreSQL cluster per
// test process.
package pgtestdb

import (
	"context"
	"sync"
	"testing"

	"duly.dev/duly/internal/pgtest"
)

// cluster is started by the first test that wants it. Nobody stops it: its
// watchdog does when this process is gone.
var cluster = sync.OnceValues(func() (*pgtest.Cluster, error) {
	return pgtest.Start(pgtest.Options{Settings: map[string]string{"max_connections": "200"}})
})

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

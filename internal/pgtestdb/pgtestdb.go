// Package pgtestdb gives tests databases of one throwaway PostgreSQL cluster per
// test process.
package pgtestdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// cluster is started by the first test that wants it. Stopping ends it; without
// that its watchdog does when this process is gone. It keeps nothing through a crash, because
// no test can crash it, and does not vacuum by itself, which would begin a worker for each of hundreds
// of databases in turn.
var cluster = sync.OnceValues(func() (*localpg.Cluster, error) {
	c, err := localpg.Start(localpg.Options{FsyncOff: true, Settings: map[string]string{"max_connections": "200", "autovacuum": "off"}})
	if err == nil {
		running.Store(c)
	}
	return c, err
})

var running atomic.Pointer[localpg.Cluster]

// migrated is a database with the newest tables, made once: to copy it takes the server a third of the
// CPU that a new one and the migrations take.
var migrated = sync.OnceValues(func() (string, error) {
	c, err := cluster()
	if err != nil {
		return "", err
	}
	ctx := context.Background()
	url, err := c.NewDatabase(ctx)
	if err != nil {
		return "", err
	}
	s, err := postgres.Open(ctx, url, schema.Options{})
	if err != nil {
		return "", err
	}
	return url, errors.Join(s.Migrate(ctx), s.Close())
})

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
	return own(tb, func(c *localpg.Cluster) (string, error) { return c.NewDatabase(context.Background()) })
}

// own is a database that ends with its test: hundreds of them, of a thousand files each, would take the end of the package
// minutes.
func own(tb testing.TB, begin func(*localpg.Cluster) (string, error)) string {
	tb.Helper()
	c, err := cluster()
	if err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	url, err := begin(c)
	if err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.DropDatabase(context.Background(), url); err != nil {
			tb.Errorf("PostgreSQL for the tests: %v", err)
		}
	})
	return url
}

// Migrated is a database for this test alone that has the newest tables, as `duly migrate` leaves them. All of a process
// say that they are the same installation; see Installation.
func Migrated(tb testing.TB) string {
	tb.Helper()
	url, err := migrated()
	if err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	return Copy(tb, url)
}

// Installation is a database like Migrated that is an installation of its own.
func Installation(tb testing.TB) string {
	tb.Helper()
	url := Migrated(tb)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	_, err = conn.Exec(ctx, `UPDATE installation SET id = gen_random_uuid()::TEXT`)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	return url
}

// Copy is a database for this test alone that begins as a copy of another, to which nothing may be connected.
func Copy(tb testing.TB, of string) string {
	tb.Helper()
	return own(tb, func(c *localpg.Cluster) (string, error) { return c.CopyDatabase(context.Background(), of) })
}

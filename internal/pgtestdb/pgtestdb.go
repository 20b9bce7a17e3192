// Package pgtestdb gives tests databases of one throwaway PostgreSQL server: of the test run's, where it has one
// ([Env]), otherwise of one per test process.
package pgtestdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// Env names the environment variable with the URL of the run's server. The server has the database that [MakeTemplate]
// makes; who started it stops it.
const Env = "DULY_TEST_POSTGRES"

// template is the database with the newest tables that tests copy: a copy takes the server a third of the CPU that a new
// database and its migrations take.
const template = "duly_template"

// Start starts a server for tests. It keeps nothing through a crash, because no test can crash it, and does not vacuum by
// itself, which would begin a worker for each of hundreds of databases in turn.
func Start() (*localpg.Cluster, error) {
	return localpg.Start(localpg.Options{FsyncOff: true, Settings: map[string]string{"max_connections": "400", "autovacuum": "off"}})
}

// MakeTemplate makes the database that tests copy on the server at a URL.
func MakeTemplate(ctx context.Context, server string) error {
	if err := execute(ctx, server, "CREATE DATABASE "+template); err != nil {
		return err
	}
	s, err := postgres.Open(ctx, named(server, template), schema.Options{})
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(ctx), s.Close())
}

// own is the server of this process. Stopping ends it; without that its watchdog does when the process is gone.
var own atomic.Pointer[localpg.Cluster]

// server is the URL of the server, which the first test that wants it starts where the run has none.
var server = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(Env); given != "" {
		return given, nil
	}
	c, err := Start()
	if err != nil {
		return "", err
	}
	own.Store(c)
	return c.URL("postgres"), nil
})

// migrated is the server once it has the template.
var migrated = sync.OnceValues(func() (string, error) {
	at, err := server()
	if err != nil || os.Getenv(Env) != "" {
		return at, err
	}
	return at, MakeTemplate(context.Background(), at)
})

// Stopping runs the tests of a package and then stops the process's own server, if there is one: what is still there is
// a leak.
type Stopping struct{ M interface{ Run() int } }

// Run runs the tests and returns their exit code, or 1 when the server does not stop.
func (s Stopping) Run() int {
	code := s.M.Run()
	if c := own.Load(); c != nil {
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
	return create(tb, server, "template1")
}

// Migrated is a database for this test alone that has the newest tables, as `duly migrate` leaves them. All of a run
// say that they are the same installation; see Installation.
func Migrated(tb testing.TB) string {
	tb.Helper()
	return create(tb, migrated, template)
}

// Installation is a database like Migrated that is an installation of its own.
func Installation(tb testing.TB) string {
	tb.Helper()
	at := Migrated(tb)
	if err := execute(context.Background(), at, `UPDATE installation SET id = gen_random_uuid()::TEXT`); err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	return at
}

// create makes a database that ends with its test: hundreds of them, of a thousand files each, would take the end of the
// run minutes.
func create(tb testing.TB, on func() (string, error), from string) string {
	tb.Helper()
	at, err := on()
	name := "test_" + strings.ToLower(rand.Text())
	if err == nil {
		err = execute(context.Background(), at, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s`, name, from))
	}
	if err != nil {
		tb.Fatalf("PostgreSQL for the tests: %v", err)
	}
	tb.Cleanup(func() {
		if err := execute(context.Background(), at, fmt.Sprintf(`DROP DATABASE %s WITH (FORCE)`, name)); err != nil {
			tb.Errorf("PostgreSQL for the tests: %v", err)
		}
	})
	return named(at, name)
}

// execute runs one statement in the database at a URL.
func execute(ctx context.Context, at, statement string) error {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// named is the URL of another database of the server at a URL.
func named(server, database string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // which connecting refuses with a better error
	}
	u.Path = "/" + database
	return u.String()
}

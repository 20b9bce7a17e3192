package schema_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"duly.dev/duly/internal/pgtest"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// open opens and migrates a store; it is closed when the test ends.
func open(tb testing.TB, url string, o schema.Options) schema.Store {
	tb.Helper()
	s, err := schema.Open(context.Background(), url, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

func sqliteURL(tb testing.TB) string {
	tb.Helper()
	return "sqlite:" + filepath.Join(tb.TempDir(), "duly.db")
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		s := open(tb, sqliteURL(tb), schema.Options{})
		return s, schema.DB(s)
	})
}

func TestPostgres(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		s := open(tb, pgtest.URL(tb), schema.Options{})
		return s, schema.DB(s)
	})
}

func TestPostgresSerializable(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) (schema.Store, *sql.DB) {
		s := open(tb, pgtest.URL(tb), schema.Options{Serializable: true})
		return s, schema.DB(s)
	})
}

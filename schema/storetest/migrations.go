package storetest

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"duly.dev/duly/schema"
)

// NextVersion is the version of the tables that [NextMigrations] leads to.
const NextVersion = 999

// NextMigrations are the files of a dialect, postgres or sqlite, and one more with these
// statements: what migrates to a version to come.
func NextMigrations(tb testing.TB, dialect, statements string) fs.FS {
	tb.Helper()
	files, err := schema.Migrations(dialect)
	if err != nil {
		tb.Fatal(err)
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		tb.Fatalf("%d migrations, %v", len(names), err)
	}
	all := fstest.MapFS{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			tb.Fatal(err)
		}
		all[name] = &fstest.MapFile{Data: text}
	}
	head := "-- +goose Up\n"
	if dialect == "postgres" {
		head = "-- +goose NO TRANSACTION\n" + head
	}
	all[fmt.Sprintf("%05d_next.sql", NextVersion)] = &fstest.MapFile{Data: []byte(head + statements)}
	return all
}

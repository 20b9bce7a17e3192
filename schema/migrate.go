package schema

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// Some migrations of PostgreSQL are Go code: postgres/migrate.go and onejournal.go name their
// numbers, which no file here may take.
//
//go:embed migrations
var migrations embed.FS

// checkVersion refuses tables that are not exactly those of this binary.
func checkVersion(have, want int64) error {
	switch {
	case have == 0:
		return fmt.Errorf("the database has no tables of version %d: run `duly migrate`", want)
	case have < want:
		return fmt.Errorf("the database's schema has version %d, this binary wants %d: run `duly migrate`", have, want)
	case have > want:
		return newerSchema(have, want)
	}
	return nil
}

func newerSchema(have, newest int64) error {
	return fmt.Errorf("the database's schema has version %d, this binary knows up to %d: use a newer binary", have, newest)
}

// HaveVersion is the version of the tables, which it makes ready for migrations. It refuses
// those that a newer binary has been at.
func HaveVersion(ctx context.Context, m *goose.Provider) (int64, error) {
	have, err := m.GetDBVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("version of the schema: %w", err)
	}
	if have > newest(m) {
		return 0, newerSchema(have, newest(m))
	}
	return have, nil
}

// newest is the version of the tables that a migrator knows.
func newest(m *goose.Provider) int64 {
	sources := m.ListSources()
	return sources[len(sources)-1].Version
}

// Migrator migrates a database by the files of its dialect below schema/migrations, and by
// more, which are none of files.
func Migrator(db *sql.DB, dialect goose.Dialect, dir string, more ...*goose.Migration) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations/"+dir)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	provider, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true), goose.WithGoMigrations(more...))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return provider, nil
}

// migrateTries bounds how often processes that migrate at once get in each
// other's way.
const migrateTries = 20

const qVersion = `SELECT COALESCE(max(version_id), 0) FROM goose_db_version WHERE is_applied`

// version is that of the tables, 0 without any.
func (r *reader) version(ctx context.Context) (int64, error) {
	have, err := column[int64](ctx, r, qVersion)
	if err != nil {
		return 0, fmt.Errorf("version of the schema: %w", err)
	}
	return have[0], nil
}

package schema

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// The files that make the tables, by dialect. What a statement of theirs may be is in
// docs/decisions/003-sql.md, and held by a test.
//
//go:embed migrations
var migrations embed.FS

// Migrations are the files that make the tables of a dialect, postgres or sqlite.
func Migrations(dialect string) (fs.FS, error) {
	files, err := fs.Sub(migrations, "migrations/"+dialect)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return files, nil
}

// Migrator migrates a database by files, or by those of this binary if there are none.
func Migrator(db *sql.DB, dialect goose.Dialect, dir string, files fs.FS) (*goose.Provider, error) {
	if files == nil {
		var err error
		if files, err = Migrations(dir); err != nil {
			return nil, err
		}
	}
	provider, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return provider, nil
}

// versions are those of the tables that a migrator knows: the first that there are, and the newest.
func versions(m *goose.Provider) (first, newest int64) {
	sources := m.ListSources()
	return sources[0].Version, sources[len(sources)-1].Version
}

// CheckVersion refuses tables that are not exactly those of the newest version that m knows; 0 is no tables.
func CheckVersion(have int64, m *goose.Provider) error {
	_, newest := versions(m)
	switch {
	case have == 0:
		return fmt.Errorf("the database has no tables of version %d: run `duly migrate`", newest)
	case have == newest:
		return nil
	}
	if err := CheckForeign(have, m); err != nil {
		return err
	}
	return fmt.Errorf("the database's schema has version %d, this binary wants %d: run `duly migrate`", have, newest)
}

// CheckForeign refuses tables that no migration leads on from.
func CheckForeign(have int64, m *goose.Provider) error {
	first, newest := versions(m)
	switch {
	case have > newest:
		return fmt.Errorf("the database's schema has version %d, this binary knows up to %d: use a newer binary", have, newest)
	case have > 0 && have < first:
		return fmt.Errorf("the database's schema has version %d, made while Duly was not released yet, and cannot be migrated: use a new database; nothing was changed", have)
	}
	return nil
}

// migrateTries bounds how often processes that migrate at once get in each
// other's way.
const migrateTries = 20

// Migrate brings the tables up to the newest version that m knows. What another process
// does meanwhile may be in its way: passing reports whether an error is of that kind.
func Migrate(ctx context.Context, m *goose.Provider, passing func(error) bool) error {
	for try := 1; ; try++ {
		err := migrateOnce(ctx, m)
		if err == nil || try == migrateTries || !passing(err) {
			return err
		}
		if err := Pause(ctx, try); err != nil {
			return err
		}
	}
}

func migrateOnce(ctx context.Context, m *goose.Provider) error {
	have, err := m.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("version of the schema: %w", err)
	}
	if err := CheckForeign(have, m); err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return about(err, "migrate")
}

const qVersion = `SELECT COALESCE(max(version_id), 0) FROM goose_db_version WHERE is_applied`

// version is that of the tables, 0 without any.
func (r *reader) version(ctx context.Context) (int64, error) {
	have, err := column[int64](ctx, r, qVersion)
	if err != nil {
		return 0, fmt.Errorf("version of the schema: %w", err)
	}
	return have[0], nil
}

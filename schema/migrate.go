package schema

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// migrations holds the files that make the tables, by dialect. docs/decisions/003-sql.md says what may be in
// them, and a test checks it.
//
//go:embed migrations
var migrations embed.FS

// Migrations returns the files that make the tables of a dialect, postgres or sqlite.
func Migrations(dialect string) (fs.FS, error) {
	files, err := fs.Sub(migrations, "migrations/"+dialect)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return files, nil
}

// Migrator makes a migrator of files; nil: those of this binary for the dialect that dir names.
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

// versions returns the versions of the first and the newest migration that m knows.
func versions(m *goose.Provider) (first, newest int64) {
	sources := m.ListSources()
	return sources[0].Version, sources[len(sources)-1].Version
}

// CheckVersion refuses tables of any version but the newest that m knows. 0 means no tables.
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

// CheckForeign refuses tables that m cannot bring up to date: newer ones, and those from before the first
// release.
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

// migrateTries is how often Migrate tries while other processes that migrate at the same time get in its way.
const migrateTries = 20

// Migrate brings the tables to the newest version that m knows. passing reports whether an error comes from
// another process that migrates at the same time, so that trying again may help.
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

// migrateOnce is one try of Migrate.
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

// qVersion reads the newest version that was applied, in the table that goose keeps.
const qVersion = `SELECT COALESCE(max(version_id), 0) FROM goose_db_version WHERE is_applied`

// version reads the version of the tables; 0 when no migration was applied.
func (r *reader) version(ctx context.Context) (int64, error) {
	have, err := column[int64](ctx, r, qVersion)
	if err != nil {
		return 0, fmt.Errorf("version of the schema: %w", err)
	}
	return have[0], nil
}

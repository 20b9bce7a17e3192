package schema

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// migrate brings the tables up to the newest embedded version, and refuses a
// database that a newer binary has been at.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, dir string) error {
	files, err := fs.Sub(migrations, "migrations/"+dir)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	provider, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	have, err := provider.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("version of the schema: %w", err)
	}
	sources := provider.ListSources()
	if newest := sources[len(sources)-1].Version; have > newest {
		return fmt.Errorf("the database's schema has version %d, this binary knows up to %d: use a newer binary", have, newest)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Migrate implements Store. Every statement of the first version is idempotent,
// so two processes may start at once.
func (p *postgres) Migrate(ctx context.Context) error {
	return migrate(ctx, p.db, goose.DialectPostgres, "postgres")
}

// Migrate implements Store.
func (s *sqlite) Migrate(ctx context.Context) error {
	return migrate(ctx, s.writer, goose.DialectSQLite3, "sqlite")
}

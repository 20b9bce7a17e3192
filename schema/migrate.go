package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	sqlitedriver "modernc.org/sqlite"
)

//go:embed migrations
var migrations embed.FS

// migrate brings the tables up to the newest embedded version, and refuses a
// database that a newer binary has been at.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, dir string) error {
	provider, err := migrator(db, dialect, dir)
	if err != nil {
		return err
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

func migrator(db *sql.DB, dialect goose.Dialect, dir string) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations/"+dir)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	provider, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return provider, nil
}

// migrateTries bounds how often processes that migrate at once get in each
// other's way.
const migrateTries = 20

// Migrate implements Store. Processes may start at once: every statement is
// idempotent, but not safe beside itself, so whoever collides tries again.
func (p *postgres) Migrate(ctx context.Context) error {
	for try := 1; ; try++ {
		err := migrate(ctx, p.db, goose.DialectPostgres, "postgres")
		if err == nil {
			err = p.makeGenerations(ctx)
		}
		if err == nil {
			err = p.sampleLess(ctx)
		}
		if err == nil || try == migrateTries || !collided(err) {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// collided: somebody else was making the same table, or the same row of
// versions, at the same moment.
func collided(err error) bool {
	switch sqlState(err) {
	case "23505", "42P07", "42710", "XX000", "40001", "40P01":
		return true
	}
	return false
}

// Migrate implements Store. A second process may open the file at the same time;
// whoever comes second finds the tables when it looks again.
func (s *sqlite) Migrate(ctx context.Context) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	for try := 1; ; try++ {
		err := migrate(ctx, s.writer, goose.DialectSQLite3, "sqlite")
		var e *sqlitedriver.Error
		if err == nil || try == migrateTries || !errors.As(err, &e) {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

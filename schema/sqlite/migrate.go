package sqlite

import (
	"context"
	"errors"

	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"

	"duly.dev/duly/schema"
)

// migrator is the migrator of this dialect.
func (s *Store) migrator() (*goose.Provider, error) {
	return schema.Migrator(s.writer, goose.DialectSQLite3, "sqlite", s.migrations)
}

// CheckVersion implements [schema.Store].
func (s *Store) CheckVersion(ctx context.Context) error {
	m, err := s.migrator()
	if err != nil {
		return err
	}
	var tables int
	if err := s.reader.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name = 'goose_db_version'`).Scan(&tables); err != nil {
		return err
	}
	if tables == 0 {
		return schema.CheckVersion(0, m)
	}
	have, err := s.TablesVersion(ctx)
	if err != nil {
		return err
	}
	return schema.CheckVersion(have, m)
}

// Migrate implements [schema.Store]. If a second process opens the file at the same time, one of the two
// fails, tries again and finds the tables.
func (s *Store) Migrate(ctx context.Context) error {
	m, err := s.migrator()
	if err != nil {
		return err
	}
	return schema.Migrate(ctx, m, func(err error) bool {
		_, ofSQLite := errors.AsType[*driver.Error](err)
		return ofSQLite
	})
}

package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
	sqlitedriver "modernc.org/sqlite"
)

func (s *sqlite) migrator() (*goose.Provider, error) {
	return migrator(s.writer, goose.DialectSQLite3, "sqlite")
}

// CheckVersion implements Store.
func (s *sqlite) CheckVersion(ctx context.Context) error {
	m, err := s.migrator()
	if err != nil {
		return err
	}
	tables, err := column[int](ctx, &s.reader, `SELECT count(*) FROM sqlite_schema WHERE name = 'goose_db_version'`)
	if err != nil || tables[0] == 0 {
		return errors.Join(err, checkVersion(0, newest(m)))
	}
	have, err := s.reader.version(ctx)
	if err != nil {
		return err
	}
	return checkVersion(have, newest(m))
}

// Migrate implements Store. A second process may open the file at the same time;
// whoever comes second finds the tables when it looks again.
func (s *sqlite) Migrate(ctx context.Context) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	for try := 1; ; try++ {
		err := s.migrateOnce(ctx)
		var e *sqlitedriver.Error
		if err == nil || try == migrateTries || !errors.As(err, &e) {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

func (s *sqlite) migrateOnce(ctx context.Context) error {
	m, err := s.migrator()
	if err != nil {
		return err
	}
	if _, err := haveVersion(ctx, m); err != nil {
		return err
	}
	if _, err := m.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

package schema

import "database/sql"

// DB is the database behind a store, for tests that look behind it.
func DB(s Store) *sql.DB {
	switch s := s.(type) {
	case *postgres:
		return s.db
	case *sqlite:
		return s.db
	}
	return nil
}

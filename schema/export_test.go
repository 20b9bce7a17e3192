package schema

import (
	"database/sql"
	"regexp"
	"strings"
)

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

// RowsSQLWithArrays is the update of rows with two tasks in its arrays, for
// EXPLAIN.
var RowsSQLWithArrays = regexp.MustCompile(`\$\d+(::(\w+)\[\])?`).ReplaceAllStringFunc(rowsSQL, func(param string) string {
	switch {
	case strings.HasSuffix(param, "::TEXT[]"):
		return "'{a,b}'::TEXT[]"
	case strings.HasSuffix(param, "[]"):
		return "'{1,2}'::INT8[]"
	}
	return "1"
})

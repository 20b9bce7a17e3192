package schema_test

import (
	"database/sql"
	"net/url"
	"testing"

	"duly.dev/duly/internal/pgtest/pgtestdb"
	"duly.dev/duly/schema"
)

// targets are the columns of the large tables whose statistics target is not 10.
func targets(t *testing.T, db *sql.DB) (columns string) {
	t.Helper()
	err := db.QueryRow(`SELECT coalesce(string_agg(attrelid::REGCLASS || '.' || attname, ' ' ORDER BY attrelid::REGCLASS::TEXT, attname), '') FROM pg_attribute
		WHERE attrelid IN ('tasks'::REGCLASS, 'journal'::REGCLASS) AND attnum > 0 AND NOT attisdropped AND coalesce(attstattarget, -1) <> 10`).Scan(&columns)
	if err != nil {
		t.Fatal(err)
	}
	return columns
}

// An analyze reads a tenth of what it would by PostgreSQL's default, and what somebody
// has set otherwise stays.
func TestAnalyzeReadsLess(t *testing.T) {
	s := open(t, pgtestdb.URL(t), schema.Options{MaxConns: 1})
	db := schema.DB(s)
	if others := targets(t, db); others != "" {
		t.Errorf("with another target: %s", others)
	}
	for _, statement := range []string{`ALTER TABLE tasks ALTER COLUMN state SET STATISTICS 50, ALTER COLUMN id SET STATISTICS -1`, `ALTER TABLE journal ALTER COLUMN at SET STATISTICS 0`} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := targets(t, db); got != "journal.at tasks.state" {
		t.Errorf("with another target: %s, want those that were set", got)
	}
}

// Who does not own the tables leaves their targets alone, and can still see that the
// tables are up to date.
func TestAnalyzeIsTheOwners(t *testing.T) {
	at := pgtestdb.URL(t)
	db := schema.DB(open(t, at, schema.Options{MaxConns: 1}))
	for _, statement := range []string{`ALTER TABLE tasks ALTER COLUMN id SET STATISTICS -1`, `DROP ROLE IF EXISTS guest`, `CREATE ROLE guest LOGIN`,
		`GRANT USAGE, CREATE ON SCHEMA public TO guest`, `GRANT ALL ON ALL TABLES IN SCHEMA public TO guest`} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := db.Exec(`DROP OWNED BY guest; DROP ROLE guest`); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("guest")
	if err := opened(t, u.String(), schema.Options{MaxConns: 1}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := targets(t, db); got != "tasks.id" {
		t.Errorf("with another target: %q, want tasks.id as it was", got)
	}
}

package storetest

import (
	"database/sql"
	"fmt"
	"testing"
)

// InGenerations makes the journal of a PostgreSQL database what it was in versions 4 to 10
// of the tables: in generations, which inherit from it. Of the rows that are there, some
// stay, and the others are in a generation that is sealed, in one that some processes still
// write, and in the newest. In the sealed one is also a row of each forgotten task: that
// was no longer shown, and went with all others of it.
func InGenerations(tb testing.TB, db *sql.DB) {
	tb.Helper()
	statements := []string{
		`CREATE TABLE journal_generations (generation INT8 NOT NULL PRIMARY KEY, opened_at TIMESTAMPTZ, sealed_at TIMESTAMPTZ)`,
		`INSERT INTO journal_generations VALUES (1, now() - INTERVAL '30 s', now() - INTERVAL '15 s'), (2, now() - INTERVAL '20 s', NULL), (3, now() - INTERVAL '10 s', NULL),
			(4, NULL, NULL), (5, NULL, NULL), (6, NULL, NULL)`,
	}
	for k := range 6 {
		statements = append(statements, fmt.Sprintf(`CREATE TABLE journal_%d (LIKE journal INCLUDING ALL) INHERITS (journal) WITH (autovacuum_enabled = false)`, k+1))
	}
	for k, which := range []string{`seq = 1 AND number % 3 = 1`, `seq = 1 AND number % 3 = 2`, `seq = 2`} {
		statements = append(statements, fmt.Sprintf(`WITH moved AS (DELETE FROM ONLY journal WHERE %s RETURNING *) INSERT INTO journal_%d SELECT * FROM moved`, which, k+1))
	}
	statements = append(statements,
		`INSERT INTO journal_1 (partition, number, seq, at, actor, commit_id, format, kind, state, round, attempt, undo)
			SELECT t.partition, t.number, 2, now(), 'agent', 1, 1, 'done', t.state, 0, 1, FALSE FROM tasks t JOIN partitions p ON p.partition = t.partition
			WHERE t.state IN ('processed', 'undone') AND t.end_number <= p.forgotten`,
		`ALTER TABLE journal_1 ADD CONSTRAINT journal_1_sealed CHECK (FALSE) NOT VALID`)
	for _, statement := range statements {
		if _, err := db.ExecContext(tb.Context(), statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

package storetest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// ManyTasks fills the tasks of a PostgreSQL with 16 partitions: two of three have ended,
// nearly all others are parked, and one in sixty is in hand.
func ManyTasks(n int) string { return fmt.Sprintf(manyTasks, n) }

const manyTasks = `INSERT INTO tasks (partition, number, id, type, plan_version, state, seq, round, waits_for, complete_by, failure_count, origin,
	created_at, updated_at, ended_at, end_number, commit_id)
SELECT g %% 16, g / 16 + 1, md5(g::TEXT), 'order', 1, CASE WHEN k < 40 THEN 'processed' WHEN k < 59 THEN 'pending' ELSE 'processing' END, 7, 0,
	CASE WHEN k BETWEEN 40 AND 58 THEN 'agent' || g %% 3 END, CASE WHEN k >= 40 THEN '2030-01-01'::TIMESTAMPTZ + g * INTERVAL '1 ms' END, 0, g,
	'2026-01-01'::TIMESTAMPTZ + g * INTERVAL '1 ms', '2026-01-02', CASE WHEN k < 40 THEN '2026-01-02'::TIMESTAMPTZ END, CASE WHEN k < 40 THEN g / 16 + 1 END, 1
FROM (SELECT g, g / 16 %% 60 AS k FROM generate_series(0, %d - 1) AS g) AS g`

// Explain is PostgreSQL's plan of a statement.
func Explain(tb testing.TB, db *sql.DB, statement string) string {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), "EXPLAIN "+statement)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			tb.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return plan.String()
}

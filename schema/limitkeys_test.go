package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// TestKeyGrantsByIndex: a claim for keys finds their grants, and what has ended, among very many. Before the table has
// statistics PostgreSQL may read those of the agent.
func TestKeyGrantsByIndex(t *testing.T) {
	for dialect := range stores {
		t.Run(dialect, func(t *testing.T) {
			s := fresh(t, dialect, schema.Options{MaxConns: 2})
			fill, until := `INSERT INTO key_grants SELECT 'pay', 'k' || i, 'n/' || i % 3, 1, 1, 0, `, `TIMESTAMPTZ '2030-01-01' + i * interval '1 second' FROM generate_series(1, 60000) AS i`
			key, db := "key_grants_pkey", schema.DB(s)
			if dialect == "sqlite" {
				fill, until = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) `+fill, `1893456000000000 + i * 1000000 FROM n`
				key, db = "PRIMARY KEY", schema.WriterDB(s)
			}
			for step, statement := range []string{fill + until, "ANALYZE key_grants"} {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{1, core.ClaimsMax} {
					var keys, holders []string
					for i := range n {
						keys, holders = append(keys, fmt.Sprint("k", i*7)), append(holders, fmt.Sprint("n/", i*7%3))
					}
					for i, q := range schema.KeyQuestions(s, "pay", keys, holders) {
						plan, index := planOf(t, s, q), []string{key, key, "key_grants_until"}[i]
						walks := step > 0 && (!strings.Contains(plan, index) || strings.Contains(plan, "Index Cond: (agent = 'pay'::text)\n"))
						if walks || strings.Contains(plan, "Seq Scan on key_grants") || strings.Contains(plan, "SCAN key_grants") {
							t.Errorf("%d keys, after %.20s: want %s:\n%s\n%s", n, statement, index, q.SQL, plan)
						}
					}
				}
			}
		})
	}
}

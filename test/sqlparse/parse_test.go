package sqlparse

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	crdb "github.com/cockroachdb/cockroachdb-parser/pkg/sql/parser"
	pg "github.com/pganalyze/pg_query_go/v6"
)

// onlyPostgres are the statements that a CockroachDB never gets, by how they
// begin, and why.
var onlyPostgres = []struct{ begin, why string }{
	{"WITH own AS (UPDATE partitions AS p SET cursor = u.cursor, control_cursor = u.control_cursor, next_number = u.next_number, next_end = u.next_end, told = u.told, last_commit = u.last_commit, cursor_stored = u.cursor_stored, control_stored = u.control_stored" +
		" FROM (SELECT unnest($1::INT8[]) AS partition, unnest($2::INT8[]) AS epoch, unnest($3::INT8[]) AS after, unnest($4::INT8[]) AS cursor," +
		" unnest($5::INT8[]) AS control_cursor, unnest($6::INT8[]) AS next_number, unnest($7::INT8[]) AS next_end, unnest($8::INT8[]) AS told," +
		" unnest($9::INT8[]) AS last_commit, unnest($10::TIMESTAMPTZ[]) AS cursor_stored, unnest($11::TIMESTAMPTZ[]) AS control_stored) AS u WHERE p.partition = u.partition AND p.epoch = u.epoch AND p.last_commit IN (u.after, u.last_commit) RETURNING p.partition) SELECT 1 / (CASE",
		"the fence of the fast path divides by zero to fail; on CockroachDB every commit takes the fallback"},
	{"COPY tasks (", "the fast path sends its rows in the same pipeline as the fence"},
	{"COPY journal (", "the fast path sends its rows in the same pipeline as the fence"},
	{"COPY labels (", "the fast path sends its rows in the same pipeline as the fence"},
	{"COPY chain (", "the fast path sends its rows in the same pipeline as the fence"},
	{"ALTER TABLE tasks SET (autovacuum_", "CockroachDB has no vacuum"},
	{"ALTER TABLE journal SET (autovacuum_", "CockroachDB has no vacuum"},
	{"ALTER TABLE tasks ALTER COLUMN number SET (n_distinct", "steers PostgreSQL's planner, which CockroachDB has not"},
	{"CREATE TEMPORARY TABLE duly_probe", "a probe for room; how full CockroachDB's disk is is not known"},
	{"INSERT INTO duly_probe", "a probe for room; how full CockroachDB's disk is is not known"},
	{"CREATE TABLE IF NOT EXISTS duly_outbox ( number INT8 GENERATED", "there a function makes the numbers: an identity is a sequence, with a right of its own"},
	{"SET plan_cache_mode ", "steers PostgreSQL's planner, which CockroachDB has not"},
	{"SET enable_seqscan ", "steers PostgreSQL's planner, which CockroachDB has not"},
	{"SET jit ", "PostgreSQL compiles long queries, CockroachDB does not"},
	{"SELECT pg_backend_pid()", "tells a pooler of transactions, of which CockroachDB has none that changes the session's process"},
	{"SELECT a.pid, ", "CockroachDB's changes of tables queue no commits behind a reader"},
	{"SELECT count(*) FROM pg_index ", "CockroachDB takes back an index whose build was cut off"},
	{"DROP INDEX CONCURRENTLY ", "CockroachDB takes back an index whose build was cut off"},
	{"SET CONSTRAINTS ALL IMMEDIATE", "CockroachDB has no constraint that is checked at the end"},
	{"SELECT COALESCE((SELECT EXTRACT(EPOCH", "asks for snapshots that hold vacuum back and for replication slots, of which CockroachDB has none"},
	{"SELECT current_setting('server_version_num')", "asked after the server has said that it is no CockroachDB"},
}

// onlyCockroach are the statements that a PostgreSQL never gets, by how they begin.
var onlyCockroach = []string{
	"ALTER TABLE partitions CONFIGURE ZONE USING gc.ttlseconds", "CREATE TABLE IF NOT EXISTS duly_outbox ( number INT8 NOT NULL DEFAULT unique_rowid()",
}

func cockroachOnly(text string) int {
	return slices.IndexFunc(onlyCockroach, func(begin string) bool { return strings.HasPrefix(flat(text), begin) })
}

func postgresOnly(text string) int {
	return slices.IndexFunc(onlyPostgres, func(o struct{ begin, why string }) bool { return strings.HasPrefix(flat(text), o.begin) })
}

// cockroachParse parses by CockroachDB's parser, which panics at some of what it
// has no syntax for.
func cockroachParse(text string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	_, err = crdb.Parse(text)
	return err
}

// problems are what stands against a text on either server.
func problems(text string, known tables) []string {
	var found []string
	if err := cockroachParse(text); err != nil {
		found = append(found, "CockroachDB's parser: "+err.Error())
	}
	tree, err := pg.Parse(text)
	if err != nil {
		return append(found, "PostgreSQL's parser: "+err.Error())
	}
	for _, s := range tree.Stmts {
		found = append(found, notShared(s.Stmt, known)...)
	}
	return found
}

// Both parsers take every statement that a CockroachDB gets, and nothing in it is
// PostgreSQL's alone.
//
// covers: E19
func TestCommonSQL(t *testing.T) {
	postgres, cockroach := texts(t)
	known := tablesOf(t, cockroach)
	heardOnly := map[int]bool{}
	for _, text := range cockroach {
		if i := cockroachOnly(text); i >= 0 {
			heardOnly[i] = true
			if err := cockroachParse(text); err != nil {
				t.Errorf("%v\n\t%s", err, flat(text))
			}
			continue
		}
		for _, p := range problems(text, known) {
			if !goose(text, p) {
				t.Errorf("%s\n\t%s", p, flat(text))
			}
		}
	}
	if len(heardOnly) < len(onlyCockroach) {
		t.Errorf("of %q, %d are heard: take the others off the list", onlyCockroach, len(heardOnly))
	}
	for _, text := range postgres {
		if cockroachOnly(text) >= 0 {
			t.Errorf("said as PostgreSQL: %s", flat(text))
		}
	}
	used := map[int]bool{}
	for _, text := range postgres {
		if i := postgresOnly(text); i >= 0 {
			used[i] = true
			if _, err := pg.Parse(text); err != nil {
				t.Errorf("%v\n\t%s", err, flat(text))
			}
			continue
		}
		for _, p := range problems(text, known) {
			if !goose(text, p) {
				t.Errorf("%s\n\t%s", p, flat(text))
			}
		}
	}
	for i, o := range onlyPostgres {
		if !used[i] {
			t.Errorf("nothing begins with %q any more: take it off the list", o.begin)
		}
	}
	t.Logf("%d texts as PostgreSQL, %d of them its own; %d as CockroachDB", len(postgres), len(used), len(cockroach))
}

// What only PostgreSQL takes is never said to a CockroachDB.
//
// covers: E19
func TestCockroachNeverGetsPostgresOnly(t *testing.T) {
	_, cockroach := texts(t)
	for _, text := range cockroach {
		if i := postgresOnly(text); i >= 0 {
			t.Errorf("said as CockroachDB: %s\n\t%s", flat(text), onlyPostgres[i].why)
		}
	}
	for _, want := range []string{"SAVEPOINT cockroach_restart", "RELEASE SAVEPOINT cockroach_restart", "ROLLBACK TO SAVEPOINT cockroach_restart"} {
		if !slices.Contains(cockroach, want) {
			t.Errorf("%s was not heard: this was no CockroachDB", want)
		}
	}
}

// goose reports whether a problem is one of the migration tool's own statements
// that was looked at by a person: in its table of versions are an id that counts
// itself and a time that nothing reads.
func goose(text, problem string) bool {
	for _, ok := range []struct{ part, problem string }{
		{"CREATE TABLE goose_db_version", "type int4"},
		{"CREATE TABLE goose_db_version", "type timestamp"},
		{"CREATE TABLE goose_db_version", "identity"},
	} {
		if strings.Contains(text, ok.part) && strings.Contains(problem, ok.problem) {
			return true
		}
	}
	return false
}

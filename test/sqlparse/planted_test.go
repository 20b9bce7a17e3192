package sqlparse

import (
	"slices"
	"strings"
	"testing"
)

// planted are one violation each, and what has to be said of it.
var planted = []struct{ text, want string }{
	{"DO $$ BEGIN NULL; END $$", "CockroachDB's parser"},
	{"DO 'BEGIN NULL; END'", "DO block"},
	{"SELECT pg_advisory_xact_lock(1)", "advisory lock"},
	{"SELECT pg_try_advisory_lock(1)", "advisory lock"},
	{"LISTEN tasks", "LISTEN"},
	{"UNLISTEN tasks", "UNLISTEN"},
	{"NOTIFY tasks", "NOTIFY"},
	{"SELECT pg_notify('tasks', 'x')", "NOTIFY"},
	{"MERGE INTO tasks AS t USING journal AS j ON t.number = j.number WHEN MATCHED THEN DELETE", "MERGE"},
	{"LOCK TABLE tasks IN SHARE MODE", "LOCK TABLE"},
	{"CREATE TABLE x (a INT8, EXCLUDE USING gist (a WITH =))", "EXCLUDE"},
	{"SELECT id FROM tasks TABLESAMPLE SYSTEM (1)", "TABLESAMPLE"},
	{"VACUUM tasks", "VACUUM"},
	{"ANALYZE tasks", "VACUUM or ANALYZE"},
	{"CREATE TABLE x (a INT8) PARTITION BY HASH (a)", "PARTITION BY"},
	{"SELECT now(zone => 'UTC')", "named argument"},
	{"UPSERT INTO tasks (id) VALUES ('a')", "PostgreSQL's parser"},
	{"SELECT id FROM tasks AS OF SYSTEM TIME '-10s'", "PostgreSQL's parser"},
	{"CREATE TABLE x (a INT8, INDEX (a))", "PostgreSQL's parser"},
	{"DELETE FROM tasks ORDER BY number LIMIT 10", "PostgreSQL's parser"},
	{"CREATE TABLE x (a INT8 PRIMARY KEY USING HASH)", "PostgreSQL's parser"},
	{"CREATE TABLE x (a INT)", "type int4"},
	{"SELECT $1::INTEGER", "type int4"},
	{"CREATE TABLE x (a SERIAL)", "type serial"},
	{"CREATE TABLE x (a BIGSERIAL)", "type bigserial"},
	{"CREATE TABLE x (a JSONB)", "type jsonb"},
	{"SELECT $1::JSON", "type json"},
	{"SELECT input -> 'a' FROM tasks", "operator ->"},
	{"SELECT number / 16 FROM tasks", "operator /"},
	{"SELECT xmax FROM tasks", "system column xmax"},
	{"SELECT t.ctid FROM tasks AS t", "system column ctid"},
	{"INSERT INTO tasks (id) VALUES ('a') ON CONFLICT ON CONSTRAINT tasks_id DO NOTHING", "ON CONSTRAINT"},
	{"INSERT INTO tasks (id) VALUES ('a') ON CONFLICT (state) DO NOTHING", "0 arbiters"},
	{"INSERT INTO tasks (id) VALUES ('a') ON CONFLICT (partition, end_number) DO NOTHING", "0 arbiters"},
	{"WITH a AS (UPDATE tasks SET seq = 1 RETURNING id) UPDATE tasks SET seq = 2", "2 mutations of tasks"},
	{"WITH a AS (DELETE FROM tasks RETURNING id) INSERT INTO tasks (id) SELECT id FROM a", "2 mutations of tasks"},
	{"SELECT id FROM tasks ORDER BY complete_by", "NULLs sort the other way"},
	{"SELECT md5(id) FROM tasks", "function md5"},
	{"SELECT to_regclass($1)", "function to_regclass"},
	{"SET enable_hashjoin = off", "setting enable_hashjoin"},
	{"COPY tasks (id) FROM STDIN", "COPY"},
	{"CREATE EXTENSION pgcrypto", "extension"},
	{"REINDEX TABLE tasks", "REINDEX"},
	{"CLUSTER tasks", "CLUSTER"},
	{"SELECT FROM WHERE", "CockroachDB's parser"},
	{"SELECT FROM WHERE", "PostgreSQL's parser"},
}

func TestPlanted(t *testing.T) {
	_, cockroach := texts(t)
	known := tablesOf(t, cockroach)
	for _, p := range planted {
		found := problems(p.text, known)
		if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, p.want) }) {
			t.Errorf("%s: %q, want one with %q", p.text, found, p.want)
		}
	}
	// What is right is not found fault with.
	for _, text := range []string{
		"SELECT id FROM tasks ORDER BY complete_by NULLS LAST",
		"SELECT id FROM tasks WHERE complete_by < $1 ORDER BY complete_by, number",
		"INSERT INTO tasks (id) VALUES ('a') ON CONFLICT (partition, id) DO NOTHING",
		"INSERT INTO tasks (id) VALUES ('a') ON CONFLICT DO NOTHING",
	} {
		if found := problems(text, known); len(found) > 0 {
			t.Errorf("%s: %q", text, found)
		}
	}
	for word, what := range statements {
		if !slices.ContainsFunc(planted, func(p struct{ text, want string }) bool {
			return strings.Contains(what, p.want) || strings.Contains(p.want, what)
		}) {
			t.Errorf("nothing planted for %s (%s)", word, what)
		}
	}
}

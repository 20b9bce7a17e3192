package schema_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"duly.dev/duly/schema"
)

// growing are the tables that have rows of every task.
var growing = []string{"tasks", "journal", "labels", "chain"}

// repeatable are the statements that a migration of PostgreSQL may have, each with its table if it has one: all may be cut
// off and begin again, none rewrites a table, none that lets commits wait takes longer than its lock.
var repeatable = []*regexp.Regexp{
	regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS (?P<makes>\w+) \(`),
	regexp.MustCompile(`^CREATE (?:UNIQUE )?INDEX IF NOT EXISTS \w+ ON (?P<made>\w+) \(`),
	regexp.MustCompile(`^CREATE (?:UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS \w+ ON \w+ \(`),
	regexp.MustCompile(`^DROP INDEX CONCURRENTLY IF EXISTS \w+$`),
	regexp.MustCompile(`^CREATE OR REPLACE VIEW \w+ AS `),
	regexp.MustCompile(`^ALTER TABLE \w+ ADD COLUMN IF NOT EXISTS \w+ [A-Z0-9]+(?:(?: NOT NULL)? DEFAULT (?:'[^']*'|-?\d+|TRUE|FALSE))?$`),
	regexp.MustCompile(`^ALTER TABLE \w+ DROP COLUMN IF EXISTS \w+$`),
	regexp.MustCompile(`^INSERT INTO (?P<small>\w+) .* ON CONFLICT DO NOTHING$`),
	regexp.MustCompile(`^UPDATE (?P<small>\w+) SET `),
	regexp.MustCompile(`^/\* PostgreSQL \*/ ALTER TABLE \w+ (?:ALTER COLUMN \w+ )?SET \([^()]*\)$`),
	regexp.MustCompile(`^/\* CockroachDB \*/ ALTER TABLE \w+ CONFIGURE ZONE USING `),
}

// statementsOf are the statements of a file as goose takes them apart, on one line each and without comments; problems what
// it says beside them.
func statementsOf(text, head string) (statements, problems []string) {
	body, is := strings.CutPrefix(text, head)
	if !is || strings.Contains(body, "+goose") {
		problems = append(problems, fmt.Sprintf("it begins with %q, and says nothing else to goose", head))
	}
	statement := ""
	for _, line := range strings.Split(body, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "--") {
			continue
		}
		if statement += " " + line; strings.HasSuffix(line, ";") {
			statements = append(statements, strings.TrimSpace(strings.TrimSuffix(statement, ";")))
			statement = ""
		}
	}
	if statement != "" {
		problems = append(problems, "no semicolon after:"+statement)
	}
	for _, s := range statements {
		if strings.Contains(s, ";") {
			problems = append(problems, "two statements in one, of which only both wait for locks: "+s)
		}
	}
	return statements, problems
}

// breaches are what stands against a migration of PostgreSQL.
func breaches(text string) []string {
	statements, found := statementsOf(text, "-- +goose NO TRANSACTION\n-- +goose Up\n")
	made := map[string]bool{}
	for _, s := range statements {
		i := slices.IndexFunc(repeatable, func(form *regexp.Regexp) bool { return form.MatchString(s) })
		if i < 0 {
			found = append(found, "not a statement that may be cut off and repeated while commits go on: "+s)
			continue
		}
		of := repeatable[i].FindStringSubmatch(s)
		switch names := repeatable[i].SubexpNames(); names[len(names)-1] {
		case "makes":
			made[of[1]] = true
		case "made":
			if !made[of[1]] {
				found = append(found, "commits would wait for this index, which is not of a table of this file; build it CONCURRENTLY: "+s)
			}
		case "small":
			if slices.Contains(growing, of[1]) {
				found = append(found, "it writes rows of every task: "+s)
			}
		}
	}
	return found
}

// Each migration keeps to what the runner relies on, those to come too.
//
// covers: B6, E20
func TestMigrationFiles(t *testing.T) {
	for _, dialect := range []string{"postgres", "sqlite"} {
		files, err := schema.Migrations(dialect)
		if err != nil {
			t.Fatal(err)
		}
		names, err := fs.Glob(files, "*")
		if err != nil || len(names) == 0 || names[0] != "00100_init.sql" {
			t.Fatalf("%s: %v, %v, want the first to be 00100_init.sql", dialect, names, err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(`^\d{5}_\w+\.sql$`).MatchString(name) {
				t.Errorf("%s: %s is not named like 00100_init.sql", dialect, name)
			}
			var found []string
			if dialect == "postgres" {
				found = breaches(string(text))
			} else { // one file is one transaction
				_, found = statementsOf(string(text), "-- +goose Up\n")
			}
			for _, f := range found {
				t.Errorf("%s: %s: %s", dialect, name, f)
			}
		}
	}
}

// What a migration may not have is found.
func TestMigrationBreaches(t *testing.T) {
	const head = "-- +goose NO TRANSACTION\n-- +goose Up\n"
	if found := breaches(head + nextStatements["postgres"]); len(found) > 0 {
		t.Errorf("what may be: %q", found)
	}
	for text, want := range map[string]string{
		"-- +goose Up\nDROP INDEX CONCURRENTLY IF EXISTS a;\n":                           "it begins with",
		head + "-- +goose StatementBegin\nDROP INDEX CONCURRENTLY IF EXISTS a;\n":        "it begins with",
		head + "UPDATE plans SET spec = ''":                                              "no semicolon",
		head + "UPDATE plans SET spec = ''; UPDATE plans SET spec = '';\n":               "two statements",
		head + "CREATE TABLE moods (mood TEXT);\n":                                       "not a statement",
		head + "CREATE INDEX IF NOT EXISTS a ON tasks (round);\n":                        "CONCURRENTLY",
		head + "CREATE INDEX CONCURRENTLY a ON tasks (round);\n":                         "not a statement",
		head + "DROP INDEX IF EXISTS tasks_id;\n":                                        "not a statement",
		head + "ALTER TABLE tasks ADD COLUMN mood TEXT;\n":                               "not a statement",
		head + "ALTER TABLE tasks ADD COLUMN IF NOT EXISTS mood TEXT NOT NULL;\n":        "not a statement",
		head + "ALTER TABLE tasks ADD COLUMN IF NOT EXISTS a TEXT DEFAULT random();\n":   "not a statement",
		head + "ALTER TABLE tasks ALTER COLUMN round TYPE INT4;\n":                       "not a statement",
		head + "ALTER TABLE tasks ALTER COLUMN labels SET NOT NULL;\n":                   "not a statement",
		head + "ALTER TABLE tasks ADD CONSTRAINT a CHECK (round > 0);\n":                 "not a statement",
		head + "ALTER TABLE tasks SET (fillfactor = 90);\n":                              "not a statement",
		head + "UPDATE tasks SET round = 0;\n":                                           "rows of every task",
		head + "INSERT INTO labels (key) SELECT id FROM tasks ON CONFLICT DO NOTHING;\n": "rows of every task",
		head + "INSERT INTO plans (name) VALUES ('a');\n":                                "not a statement",
		head + "DROP VIEW steps;\n":                                                      "not a statement",
		head + "VACUUM tasks;\n":                                                         "not a statement",
	} {
		if found := breaches(text); len(found) != 1 || !strings.Contains(found[0], want) {
			t.Errorf("%s: %q, want one with %q", text, found, want)
		}
	}
}

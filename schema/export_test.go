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

// RowsSQL is the update of a commit's rows, RowsParams how many parameters it has.
var RowsSQL, RowsParams = rowsSQL, ownParam

// Reads are the queries that must not walk all tasks, with values for their
// parameters and the indexes they go by.
var Reads = []struct {
	Name, SQL, Values string
	Indexes           []string
}{
	{"active", dollars(qActive), "1, 0, 1000", []string{"tasks_active"}},
	{"overdue", dollars(qOverdue), "1, '2040-01-01', '1970-01-01', 0, 1000", []string{"tasks_active", "tasks_parked"}},
	{"waiting", dollars(qWaiting), "1, 'agent1', 100, 1000", []string{"tasks_waiting"}},
	{"next agent", dollars(qNextAgent), "1, ''", []string{"tasks_waiting"}},
	{"failed", "SELECT number FROM tasks WHERE partition = $1 AND state = 'error' ORDER BY number DESC LIMIT $2", "1, 51", []string{"tasks_failed"}},
	{"untold", dollars(qUntold), "1, 3, 1000", []string{"tasks_ended"}},
}

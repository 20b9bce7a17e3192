package schema

import (
	"fmt"
	"strings"
)

// The columns that a commit sends, each as one array.
var (
	partitionColumns = []field{
		{"partition", "INT8"}, {"epoch", "INT8"}, {"after", "INT8"}, {"cursor", "INT8"}, {"control_cursor", "INT8"},
		{"next_number", "INT8"}, {"next_end", "INT8"}, {"told", "INT8"}, {"last_commit", "INT8"}, {"cursor_stored", "TIMESTAMPTZ"}, {"control_stored", "TIMESTAMPTZ"},
	}
	// stateColumns are those of a task that may change.
	stateColumns = []field{
		{"partition", "INT8"}, {"number", "INT8"}, {"plan_version", "INT8"}, {"state", "TEXT"}, {"seq", "INT8"}, {"round", "INT8"},
		{"locked_by", "TEXT"}, {"waits_for", "TEXT"}, {"complete_by", "TIMESTAMPTZ"}, {"deadline", "TIMESTAMPTZ"},
		{"failure_count", "INT8"}, {"updated_at", "TIMESTAMPTZ"}, {"ended_at", "TIMESTAMPTZ"}, {"end_number", "INT8"},
	}
	birthColumns = append(stateColumns[:len(stateColumns):len(stateColumns)],
		field{"id", "TEXT"}, field{"type", "TEXT"}, field{"input_hash", "BYTEA"}, field{"reply_to", "TEXT"},
		field{"trace", "TEXT"}, field{"origin", "INT8"}, field{"created_at", "TIMESTAMPTZ"})
	journalColumns = []field{
		{"partition", "INT8"}, {"number", "INT8"}, {"seq", "INT8"}, {"at", "TIMESTAMPTZ"}, {"actor", "TEXT"}, {"kind", "TEXT"},
		{"state", "TEXT"}, {"round", "INT8"}, {"step", "INT8"}, {"step_status", "TEXT"}, {"attempt", "INT8"}, {"code", "INT8"},
		{"error", "BYTEA"}, {"fingerprint", "TEXT"}, {"reason", "BYTEA"}, {"result", "BYTEA"}, {"quiet", "TIMESTAMPTZ"}, {"next", "INT8"},
		{"next_attempt", "INT8"}, {"undo", "BOOL"}, {"due", "TIMESTAMPTZ"}, {"deadline", "TIMESTAMPTZ"}, {"input", "BYTEA"},
	}
	bornColumn = field{"birth", "BOOL"}
)

// fenceColumns is how many of partitionColumns a commit compares; it writes the others.
const fenceColumns = 3

// The formats of journal rows; rows of a later one are not read.
const (
	plainFormat   = 1
	inputFormat   = 2 // with the task's input, which binaries of before look for in tasks
	journalFormat = inputFormat
)

// formatOf is the format of a row that holds that input of its task.
func formatOf(input []byte) int16 {
	if input == nil {
		return plainFormat
	}
	return inputFormat
}

// The parameters of a commit's statements: its id, and the groups of columns.
var (
	firstBirth   = 2 + len(partitionColumns)
	firstJournal = firstBirth + len(birthColumns)
	ownParam     = 2 + len(stateColumns)
)

// unnest is the columns as the rows u. In a select list, unnest runs row by row;
// in a FROM it would first write every column to a store of its own.
func unnest(first int, cols ...field) string {
	list := make([]string, len(cols))
	for i, c := range cols {
		list[i] = fmt.Sprintf("unnest($%d::%s[]) AS %s", first+i, c.typ, c.name)
	}
	return "(SELECT " + strings.Join(list, ", ") + ") AS u"
}

// names and values are the columns as an INSERT names them, and what they get.
func names(cols []field) string {
	list := make([]string, len(cols))
	for i, c := range cols {
		list[i] = c.name
	}
	return strings.Join(list, ", ")
}

func values(cols []field) string { return "u." + strings.ReplaceAll(names(cols), ", ", ", u.") }

func assign(cols []field) string {
	list := make([]string, len(cols))
	for i, c := range cols {
		list[i] = c.name + " = u." + c.name
	}
	return strings.Join(list, ", ")
}

package schema

import (
	"database/sql"
	"errors"

	"duly.dev/duly/internal/core"
)

func pick(first bool, a, b core.Instant) core.Instant {
	if first {
		return a
	}
	return b
}

// epochIs reads the epoch of a partition, in a transaction that holds its row.
func epochIs(row interface{ Scan(...any) error }, epoch int64) (bool, error) {
	var have int64
	err := row.Scan(&have)
	if errors.Is(err, sql.ErrNoRows) { // pgx's error is that one too
		return false, nil
	}
	return have == epoch, err
}

// purges: ended before the time, and told. The journal goes first, by the same
// choice of tasks as the rows after it.
var purges = []struct {
	sql          string
	rows, counts bool
}{
	{`DELETE FROM tasks WHERE partition = ?1 AND number IN (` + purgeChoice + ` AND t.purged ORDER BY t.end_number LIMIT ?3)`, true, true},
	{`DELETE FROM journal WHERE partition = ?1 AND number IN (` + purgeChoice + ` AND NOT t.purged ORDER BY t.end_number LIMIT ?3)`, false, false},
	{`UPDATE tasks SET purged = TRUE, input = NULL WHERE partition = ?1 AND number IN (` + purgeChoice + ` AND NOT t.purged ORDER BY t.end_number LIMIT ?3)`, false, true},
}

const purgeChoice = `SELECT t.number FROM tasks t JOIN partitions p ON p.partition = t.partition
	WHERE t.partition = ?1 AND t.end_number IS NOT NULL AND t.end_number <= p.told AND t.ended_at < ?2 AND t.state <> 'error'`

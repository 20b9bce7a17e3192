package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"duly.dev/duly/schema"
)

// The migrations that are of PostgreSQL alone.
const (
	// oneJournalVersion moves the journal into one table: versions 4 to 10 kept it in
	// generations on PostgreSQL, tables that inherit from journal.
	oneJournalVersion = 11
	// storageVersion sets how the large tables are vacuumed and analyzed.
	storageVersion = 12
)

// mergeTasks is of how many tasks one transaction of the merge moves the rows; their
// partition does not commit meanwhile.
const mergeTasks = 250

const (
	generationsSQL = `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'journal'::REGCLASS ORDER BY c.relname`
	// haveGenerationsSQL asks for the table that older versions turn the generations by.
	haveGenerationsSQL = `SELECT count(*) FROM pg_class WHERE oid = to_regclass('journal_generations')`
	stopGenerationsSQL = `DELETE FROM journal_generations`
	dropGenerationsSQL = `DROP TABLE journal_generations`

	isSealedSQL = `SELECT count(*) FROM pg_constraint WHERE conrelid = $1::TEXT::REGCLASS AND conname = $1 || '_sealed'`
	sealSQL     = `ALTER TABLE %[1]s ADD CONSTRAINT %[1]s_sealed CHECK (FALSE) NOT VALID`
	emptiedSQL  = `DROP TABLE %s`

	mergeNextSQL = `SELECT COALESCE(max(number), $2) FROM (SELECT DISTINCT number FROM ONLY %s WHERE partition = $1 AND number > $2 ORDER BY number LIMIT $3) AS piece`
	// mergeMoveSQL moves rows of tasks that are not forgotten. The others go with their table:
	// no purge looks for them any more.
	mergeMoveSQL = `WITH moved AS (DELETE FROM ONLY %[1]s AS j USING tasks AS t
		WHERE j.partition = $1 AND j.number > $2 AND j.number <= $3 AND t.partition = $1 AND t.number = j.number
			AND NOT (t.state IN ('processed', 'undone') AND (t.purged OR t.end_number <= (SELECT p.forgotten FROM partitions p WHERE p.partition = $1)))
		RETURNING j.*)
	INSERT INTO journal (` + mergeColumns + `) SELECT ` + mergeColumns + ` FROM moved`
	// mergeColumns are those of the journal in version 10.
	mergeColumns = `partition, number, seq, at, actor, commit_id, format, kind, state, round, step, step_status, attempt, code, error, fingerprint,
		reason, result, quiet, next, next_attempt, undo, due, deadline, input`
)

// mergeGenerations moves what is in generations of the journal to the journal itself, and
// drops them. It may be cut off anywhere and begins again. Nodes of before go on beside it:
// a sealed generation refuses their rows, and then they write to journal, which they read
// as a whole. What they cannot do any more is to turn the generations.
func (p *Store) mergeGenerations(ctx context.Context, db *sql.DB) error {
	if p.dialect != "postgres" {
		return nil
	}
	have, err := column[int](ctx, db, haveGenerationsSQL)
	if err != nil {
		return fmt.Errorf("generations of the journal: %w", err)
	}
	if have[0] > 0 { // nothing is opened, sealed or emptied after this
		if _, err := db.ExecContext(ctx, stopGenerationsSQL); err != nil {
			return fmt.Errorf("generations of the journal: %w", err)
		}
	}
	tables, err := column[string](ctx, db, generationsSQL)
	if err != nil {
		return fmt.Errorf("generations of the journal: %w", err)
	}
	partitions, err := column[int64](ctx, db, `SELECT partition FROM partitions ORDER BY partition`)
	if err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	for _, table := range tables {
		if err := mergeGeneration(ctx, db, table, partitions); err != nil {
			return fmt.Errorf("generation %s of the journal: %w", table, err)
		}
	}
	if have[0] > 0 {
		if _, err := db.ExecContext(ctx, dropGenerationsSQL); err != nil {
			return fmt.Errorf("generations of the journal: %w", err)
		}
	}
	return nil
}

// mergeGeneration seals one generation, moves what is not forgotten, and drops it.
func mergeGeneration(ctx context.Context, db *sql.DB, table string, partitions []int64) error {
	sealed, err := column[int](ctx, db, isSealedSQL, table)
	if err != nil {
		return err
	}
	if sealed[0] == 0 {
		if _, err := db.ExecContext(ctx, fmt.Sprintf(sealSQL, table)); err != nil {
			return err
		}
	}
	for _, partition := range partitions {
		for after := int64(-1); ; {
			upTo, err := column[int64](ctx, db, fmt.Sprintf(mergeNextSQL, table), partition, after, mergeTasks)
			if err != nil {
				return err
			}
			if upTo[0] == after {
				break
			}
			if err := mergeSome(ctx, db, table, partition, after, upTo[0]); err != nil {
				return fmt.Errorf("partition %d: %w", partition, err)
			}
			after = upTo[0]
		}
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf(emptiedSQL, table))
	return err
}

// mergeSome moves rows of tasks whose number is in a range, while no purge forgets any.
func mergeSome(ctx context.Context, db *sql.DB, table string, partition, after, upTo int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, lockSQL, partition); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(mergeMoveSQL, table), partition, after, upTo); err != nil {
		return err
	}
	return tx.Commit()
}

// storageSQL makes autovacuum keep up with tables of which as much is deleted as is written:
// by the default it would begin when a fifth of them is dead, and PostgreSQL would take a
// table that grows for a tenth smaller than it is at most. Parameters of a table take
// effect for its next vacuum.
var storageSQL = []string{
	`ALTER TABLE tasks SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)`,
	`ALTER TABLE journal SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 1000)`,
}

// setStorage sets the tables' parameters.
func (p *Store) setStorage(ctx context.Context, db *sql.DB) error {
	if p.dialect != "postgres" {
		return nil
	}
	for _, statement := range storageSQL {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("settings of a table: %w", err)
		}
	}
	return nil
}

// column are the rows of a query of one column.
func column[T any](ctx context.Context, db *sql.DB, query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return schema.ScanColumn[T](rows)
}

package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sampleTarget is the statistics target of each column of the two large tables, of
// which PostgreSQL's analyze reads 300 rows each. Nobody here asks by a column that
// has many values unevenly, and with the default, 100, an analyze of both takes half
// a second of a processor once a minute, all at once.
const sampleTarget = 10

// untunedSQL tells which columns have no target of their own, in tables that are ours.
const untunedSQL = `SELECT c.relname, array_agg(a.attname::TEXT ORDER BY a.attnum) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE c.oid IN ('tasks'::REGCLASS, 'journal'::REGCLASS) AND pg_has_role(c.relowner, 'USAGE')
	AND a.attnum > 0 AND NOT a.attisdropped AND coalesce(a.attstattarget, -1) < 0 GROUP BY c.relname`

// sampleLess gives the columns of the large tables their target, and leaves alone
// those to which somebody has given another.
func (p *postgres) sampleLess(ctx context.Context) error {
	if p.dialect != "postgres" {
		return nil
	}
	rows, err := p.pool.Query(ctx, untunedSQL)
	if err != nil {
		return fmt.Errorf("statistics targets: %w", err)
	}
	type untuned struct {
		Table   string
		Columns []string
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[untuned])
	if err != nil {
		return fmt.Errorf("statistics targets: %w", err)
	}
	for _, t := range tables {
		for i, column := range t.Columns {
			t.Columns[i] = fmt.Sprintf("ALTER COLUMN %s SET STATISTICS %d", pgx.Identifier{column}.Sanitize(), sampleTarget)
		}
		if _, err := p.pool.Exec(ctx, `ALTER TABLE `+t.Table+` `+strings.Join(t.Columns, ", ")); err != nil {
			return fmt.Errorf("statistics targets of table %s: %w", t.Table, err)
		}
	}
	return nil
}

// statisticsLook is after how many births of this process it looks whether the
// database knows of them.
const statisticsLook = 5000

// knowTasks sees to it that the database does not take the tasks for few when they
// are many. A table that was vacuumed while it was empty is empty to its planner
// until it is analyzed, by itself a minute later, however much comes; for an
// empty table reading all of it for each row looks as good as looking by key, and commits
// slow down with the square of what has come.
func (p *postgres) knowTasks(ctx context.Context, births int) error {
	if p.dialect != "postgres" {
		return nil
	}
	if p.born.Add(int64(births)) < statisticsLook {
		return nil
	}
	born := p.born.Swap(0)
	if born == 0 { // somebody else looks
		return nil
	}
	var known float64
	if err := p.pool.QueryRow(ctx, `SELECT reltuples FROM pg_class WHERE oid = 'tasks'::REGCLASS`).Scan(&known); err != nil {
		return fmt.Errorf("statistics of the tasks: %w", err)
	}
	// Without any statistics, below 0, the planner goes by the size of the file.
	if known < 0 || known >= float64(born) {
		return nil
	}
	if _, err := p.pool.Exec(ctx, `ANALYZE tasks`); err != nil {
		return fmt.Errorf("statistics of the tasks: %w", err)
	}
	return nil
}

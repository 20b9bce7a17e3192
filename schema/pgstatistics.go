package schema

import (
	"context"
	"fmt"
)

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

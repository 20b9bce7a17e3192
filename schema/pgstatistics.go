package schema

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// sampleTarget is the statistics target of each column of the two large tables, of
// which PostgreSQL's analyze reads 300 rows each. Nobody here asks by a column that
// has many values unevenly, and with the default, 100, an analyze of both takes half
// a second of a processor once a minute, all at once.
const sampleTarget = 10

// sampleLessSQL makes the statements that give the columns of our large tables their
// target. Those to which somebody has given another keep it.
const sampleLessSQL = `SELECT 'ALTER TABLE ' || c.relname || string_agg(' ALTER COLUMN ' || quote_ident(a.attname) || ' SET STATISTICS ' || ?1::INT8, ',')
	FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE c.oid IN ('tasks'::REGCLASS, 'journal'::REGCLASS) AND pg_has_role(c.relowner, 'USAGE')
	AND a.attnum > 0 AND NOT a.attisdropped AND coalesce(a.attstattarget, -1) < 0 GROUP BY c.relname`

// sampleLess gives the columns of the large tables their statistics target.
func (p *postgres) sampleLess(ctx context.Context, db *sql.DB) error {
	if p.dialect != "postgres" {
		return nil
	}
	statements, err := column[string](ctx, &reader{db: db, params: dollars}, sampleLessSQL, sampleTarget)
	for _, statement := range statements {
		if err == nil {
			_, err = db.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		return fmt.Errorf("statistics targets: %w", err)
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
// slow down with the square of what has come. No setting of the table brings its
// analyze forward, so it is asked for here, beside the commits: none waits for it.
func (p *postgres) knowTasks(births int) {
	if p.dialect != "postgres" || p.born.Add(int64(births)) < statisticsLook {
		return
	}
	if born := p.born.Swap(0); born > 0 { // else another commit looks
		p.chores.run(func(ctx context.Context) {
			_ = p.lookAtTasks(ctx, born) // after as many births again it is tried again
		})
	}
}

func (p *postgres) lookAtTasks(ctx context.Context, born int64) error {
	var known float64
	if err := p.asked.of.db.QueryRowContext(ctx, `SELECT reltuples FROM pg_class WHERE oid = 'tasks'::REGCLASS`).Scan(&known); err != nil {
		return fmt.Errorf("statistics of the tasks: %w", err)
	}
	// Without any statistics, below 0, the planner goes by the size of the file.
	if known < 0 || known >= float64(born) {
		return nil
	}
	if _, err := p.asked.of.db.ExecContext(ctx, `ANALYZE tasks`); err != nil {
		return fmt.Errorf("statistics of the tasks: %w", err)
	}
	return nil
}

// chores is work of a store beside its calls, one at a time. The zero value is ready.
type chores struct {
	mu     sync.Mutex
	busy   bool
	stop   context.CancelFunc // not nil: has begun
	closed bool
	all    sync.WaitGroup
}

// run begins a chore, unless one is under way or the store is being closed.
func (c *chores) run(chore func(context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.closed {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	c.busy, c.stop = true, stop
	c.all.Go(func() {
		defer stop()
		chore(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy = false
	})
}

// close stops the chore that is under way and waits for it.
func (c *chores) close() {
	c.mu.Lock()
	c.closed = true
	if c.stop != nil {
		c.stop()
	}
	c.mu.Unlock()
	c.all.Wait()
}

package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5/stdlib"

	"duly.dev/duly/internal/pause"
)

// patientConnector makes the connections of a migration patient.
type patientConnector struct {
	driver.Connector
	m *migration
}

// Connect implements [driver.Connector].
func (c patientConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &patientConn{conn.(*stdlib.Conn), c.m}, nil
}

// patientConn is a connection that waits for locks statement by statement. The migrator does not know of it:
// it runs its files through it.
type patientConn struct {
	*stdlib.Conn
	m *migration
}

var (
	// dialectOnly begins a statement that only one of the databases is to run.
	dialectOnly = regexp.MustCompile(`^/\* (PostgreSQL|CockroachDB) \*/ `)
	// concurrently matches a statement that waits for all older transactions while nobody waits for it. Its
	// group is the index that it builds.
	concurrently = regexp.MustCompile(`(?i)^(?:drop index concurrently|create (?:unique )?index concurrently if not exists (\w+))`)
)

// ExecContext implements [driver.ExecerContext]. A statement that gets no lock within lockMax steps back,
// lets others through and tries again, until ctx ends. A statement that runs beside commits waits for as long
// as it takes.
func (c *patientConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	postgres := c.m.p.dialect == "postgres"
	if of := dialectOnly.FindStringSubmatch(query); of != nil {
		if (of[1] == "PostgreSQL") != postgres {
			return driver.ResultNoRows, nil
		}
		query = query[len(of[0]):]
	}
	if beside := concurrently.FindStringSubmatch(query); beside != nil && postgres {
		return c.runConcurrently(ctx, query, beside[1])
	}
	for rest := lockRest; ; rest = min(2*rest, lockRestMax) {
		result, err := c.Conn.ExecContext(ctx, query, args)
		if sqlState(err) != lockNotAvailable || c.Conn.Conn().PgConn().TxStatus() != 'I' {
			c.m.tell("")
			return result, err
		}
		c.m.tell(c.m.holders(ctx))
		if err := pause.For(ctx, rest); err != nil {
			return nil, fmt.Errorf("%w (waiting for %s)", err, c.m.waitsFor)
		}
	}
}

// runConcurrently builds or drops an index while commits go on. builds is the index, or "".
func (c *patientConn) runConcurrently(ctx context.Context, query, builds string) (driver.Result, error) {
	if builds != "" {
		if err := c.m.dropInvalid(ctx, builds); err != nil {
			return nil, err
		}
	}
	if _, err := c.Conn.ExecContext(ctx, fmt.Sprintf(lockTimeoutSQL, 0), nil); err != nil {
		return nil, err
	}
	result, err := c.Conn.ExecContext(ctx, query, nil)
	_, again := c.Conn.ExecContext(ctx, fmt.Sprintf(lockTimeoutSQL, lockMax.Milliseconds()), nil)
	return result, errors.Join(err, again)
}

// dropInvalid drops the rest of an index whose building was cut off. CREATE INDEX IF NOT EXISTS would take it
// for the whole index.
func (m *migration) dropInvalid(ctx context.Context, index string) error {
	var invalid int
	if err := m.db.QueryRowContext(ctx, invalidSQL, index).Scan(&invalid); err != nil {
		return fmt.Errorf("index %s: %w", index, err)
	}
	if invalid == 0 {
		return nil
	}
	if _, err := m.db.ExecContext(ctx, fmt.Sprintf(dropSQL, index)); err != nil {
		return fmt.Errorf("index %s, of which a part is left: %w", index, err)
	}
	return nil
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrPooler refuses a connection pooler that may use another session of the server for each transaction.
// Prepared statements would be missing there, and what Duly sets for its session would be set for other users
// of the pool.
var ErrPooler = errors.New("a connection pooler in transaction or statement mode is between here and the database: " +
	"let it pool sessions (PgBouncer: pool_mode = session, for this database or user), or connect without it")

// poolerTries is how many sessions shared holds at once. One is not enough: the pooler may have others that
// are free.
const poolerTries = 4

// poolerCheck finds out once whether there is such a pooler, before a connection sets or prepares anything.
type poolerCheck struct {
	config *pgx.ConnConfig
	mu     sync.Mutex
	// fine says that there is none, or that it pools sessions.
	fine bool
}

// check looks at a new connection. It suspects a pooler where the process id that the client was told is not
// that of the process that answers: a pooler makes one up.
func (c *poolerCheck) check(ctx context.Context, conn *pgx.Conn) error {
	if conn.PgConn().ParameterStatus("crdb_version") != "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fine {
		return nil
	}
	pid, err := backend(ctx, conn.PgConn())
	if err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		if err := c.shared(ctx, pid); err != nil {
			return err
		}
	}
	c.fine = true
	return nil
}

// shared is ErrPooler if another connection gets the session that just served ours, which ours has not given
// up.
func (c *poolerCheck) shared(ctx context.Context, pid uint32) (err error) {
	var others []*pgconn.PgConn // held until the end, so that each has a session of its own
	defer func() {
		for _, other := range others {
			err = errors.Join(err, other.Close(context.WithoutCancel(ctx)))
		}
	}()
	for range poolerTries {
		other, cerr := pgconn.ConnectConfig(ctx, &c.config.Copy().Config)
		if cerr != nil {
			return fmt.Errorf("connect through a pooler: %w", cerr)
		}
		others = append(others, other)
		// A transaction keeps its session, so each of these has another one. Statement
		// mode has no transactions.
		if _, err := other.Exec(ctx, `BEGIN`).ReadAll(); err != nil {
			return fmt.Errorf("%w (%w)", ErrPooler, err)
		}
		has, err := backend(ctx, other)
		if err != nil {
			return err
		}
		if has == pid {
			return ErrPooler
		}
	}
	return nil
}

// backend asks for the id of the server process that answers.
func backend(ctx context.Context, conn *pgconn.PgConn) (uint32, error) {
	results, err := conn.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("session of the database: %w", err)
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("session of the database: %w", err)
	}
	return uint32(pid), nil
}

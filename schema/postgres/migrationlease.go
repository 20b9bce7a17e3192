package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"duly.dev/duly/internal/pause"
)

// A lease in a row of its own lets one process at a time migrate a database: CockroachDB has no session
// locks. One conditional statement takes it, which is right at any isolation level, and time is the
// database's.

const (
	leaseTime  = 15 * time.Second // until another takes the lease of one that has died
	leaseRenew = 3 * time.Second
	leaseStop  = 10 * time.Second // without a renewal the migration stops itself, before another begins
)

const (
	leaseTableSQL = `CREATE TABLE IF NOT EXISTS migration_lease (one INT8 NOT NULL PRIMARY KEY, holder TEXT NOT NULL, until TIMESTAMPTZ NOT NULL)`
	leaseSQL      = `INSERT INTO migration_lease AS l (one, holder, until) VALUES (1, $1, clock_timestamp() + $2::INT8 * INTERVAL '1 microsecond')
		ON CONFLICT (one) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE l.holder = excluded.holder OR l.until < clock_timestamp()`
	leaseEndSQL = `DELETE FROM migration_lease WHERE holder = $1`
)

// errLeaseLost ends a migration that could not renew its lease for leaseStop.
var errLeaseLost = errors.New("migrate: this process may have lost its lease to another that migrates: start it again")

// alone waits for the lease of migrations, a row of the database, and calls do while this process holds it. do's context
// ends when another process may have it.
func (m *migration) alone(ctx context.Context, do func(context.Context) error) error {
	holder := rand.Text()
	if err := m.await(ctx, holder); err != nil {
		return errors.Join(err, m.release(ctx, holder))
	}
	ctx, stop := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if !m.keep(ctx, holder) {
			stop(errLeaseLost)
		}
	}()
	err := do(ctx)
	if lost := context.Cause(ctx); errors.Is(lost, errLeaseLost) {
		err = errors.Join(lost, err)
	}
	stop(nil)
	<-kept
	return errors.Join(err, m.release(ctx, holder))
}

// await takes the lease as soon as it is free, and says what it waits for.
func (m *migration) await(ctx context.Context, holder string) error {
	for {
		have, err := m.lease(ctx, holder)
		if err == nil && have {
			m.tell("")
			return nil
		}
		switch {
		case err == nil:
			m.tell("another process that migrates")
		case unanswered(ctx, err):
			m.tell("the database to store the lease of this migration: its table may be locked, or a synchronous standby be missing")
		case !collided(err):
			return fmt.Errorf("migrate: %w", err)
		}
		if err := pause.For(ctx, lockPoll); err != nil {
			return fmt.Errorf("migrate: %w (waiting for %s)", err, m.waitsFor)
		}
	}
}

// unanswered reports whether the database was reached but did not answer a statement in time.
func unanswered(ctx context.Context, err error) bool {
	_, unreached := errors.AsType[*pgconn.ConnectError](err)
	return ctx.Err() == nil && pgconn.Timeout(err) && !unreached
}

// lease takes or renews the lease and reports whether holder has it. It makes the table on first use.
func (m *migration) lease(ctx context.Context, holder string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	take := func() (pgconn.CommandTag, error) {
		return m.p.pool.Exec(ctx, leaseSQL, holder, leaseTime.Microseconds())
	}
	tag, err := take()
	if sqlState(err) == "42P01" { // there is no table yet
		if _, err = m.p.pool.Exec(ctx, leaseTableSQL); err == nil {
			tag, err = take()
		}
	}
	return tag.RowsAffected() == 1, err
}

// keep renews the lease until ctx ends. false: another process may have it by now.
func (m *migration) keep(ctx context.Context, holder string) bool {
	for since := time.Now(); time.Since(since) < leaseStop; {
		if pause.For(ctx, leaseRenew) != nil {
			return true
		}
		began := time.Now()
		switch have, err := m.lease(ctx, holder); {
		case err == nil && !have:
			return false
		case err == nil:
			since = began
		}
	}
	return false
}

// release ends the lease, so that the next process need not wait for leaseTime.
func (m *migration) release(ctx context.Context, holder string) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	for range 3 { // over other connections, where one was lost
		if _, err = m.p.pool.Exec(ctx, leaseEndSQL, holder); err == nil || sqlState(err) == "42P01" {
			return nil
		}
	}
	return fmt.Errorf("migrate: end the lease: %w", err)
}

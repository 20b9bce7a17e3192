package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"duly.dev/duly/schema"
)

const (
	// lockMax is how long a statement of a migration waits for a lock. All that want the
	// table wait behind it meanwhile, commits too; then it lets them by, for lockRest, and
	// more each time up to lockRestMax.
	lockMax     = 500 * time.Millisecond
	lockRest    = time.Second
	lockRestMax = 10 * time.Second
	// lockPoll is between looks whether another process still migrates.
	lockPoll = 200 * time.Millisecond
	// tellAgain is how often it is told what is still waited for.
	tellAgain = time.Minute
)

// lockNotAvailable is the SQLSTATE of a lock time-out.
const lockNotAvailable = "55P03"

const (
	lockTimeoutSQL = `SET lock_timeout = %d`
	// holdersSQL tells who has held locks of our tables for longer than a commit.
	holdersSQL = `SELECT a.pid, COALESCE(a.application_name, ''), COALESCE(a.state, ''), COALESCE(a.query, '')
		FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid() AND COALESCE(a.xact_start < clock_timestamp() - INTERVAL '400 ms', TRUE)
		AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.pid = a.pid AND l.granted AND l.locktype = 'relation'
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND (c.relname IN ('plans', 'plan_steps', 'partitions', 'tasks', 'journal', 'labels', 'chain', 'steps', 'goose_db_version')))
		ORDER BY a.xact_start LIMIT 3`
	invalidSQL = `SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid`
	dropSQL    = `DROP INDEX CONCURRENTLY IF EXISTS %s`
)

// CheckVersion implements [schema.Store].
func (p *Store) CheckVersion(ctx context.Context) error {
	m, err := p.migrator(p.db)
	if err != nil {
		return err
	}
	have, err := p.TablesVersion(ctx)
	if err != nil && sqlState(err) != "42P01" {
		return err
	}
	return schema.CheckVersion(have, m)
}

func (p *Store) migrator(db *sql.DB) (*goose.Provider, error) {
	return schema.Migrator(db, goose.DialectPostgres, "postgres", p.migrations)
}

// Migrate implements [schema.Store]. Processes may start at once, and one at a time migrates.
// How a statement waits for a lock that another session holds, such as a backup, is
// [patientConn.ExecContext].
func (p *Store) Migrate(ctx context.Context) error {
	m := &migration{p: p}
	sets := []string{"SET statement_timeout = 0", endIdleSQL}
	if p.dialect == "cockroach" { // which changes tables in no transaction that is READ COMMITTED, whatever its default
		sets = append(sets, "SET default_transaction_isolation = 'serializable'")
	}
	m.db = sql.OpenDB(patientConnector{m: m, Connector: stdlib.GetConnector(*p.config, stdlib.OptionAfterConnect(settings(
		sets, []string{fmt.Sprintf(lockTimeoutSQL, lockMax.Milliseconds())})))})
	m.db.SetMaxOpenConns(2) // one migrates, one looks around
	return errors.Join(m.run(ctx), m.db.Close())
}

// migration is one call of Migrate.
type migration struct {
	p        *Store
	db       *sql.DB // of patient connections
	waitsFor string  // as last told
	told     time.Time
}

func (m *migration) run(ctx context.Context) error {
	provider, err := m.p.migrator(m.db)
	if err != nil {
		return err
	}
	if have, err := m.p.TablesVersion(ctx); err == nil { // there may be no tables yet
		if err := schema.CheckForeign(have, provider); err != nil {
			return err
		}
	}
	return m.alone(ctx, func(ctx context.Context) error { return schema.Migrate(ctx, provider, collided) })
}

// tell says what is waited for, when it changes and once in a while; "" when nothing is
// any more.
func (m *migration) tell(what string) {
	if m.p.tell == nil || what == m.waitsFor && (what == "" || time.Since(m.told) < tellAgain) {
		return
	}
	m.waitsFor, m.told = what, time.Now()
	if what == "" {
		m.p.tell("migrate: waits no longer")
		return
	}
	m.p.tell("migrate: waits for " + what)
}

// holders names the sessions that stand in the way, as far as this user may see them.
func (m *migration) holders(ctx context.Context) string {
	rows, err := m.db.QueryContext(ctx, holdersSQL)
	if err != nil {
		return "a lock of another session"
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var pid int
		var application, state, query string
		if err := rows.Scan(&pid, &application, &state, &query); err != nil {
			break
		}
		all = append(all, fmt.Sprintf("session %d (%s, %s: %s)", pid, application, state, withoutValues(query)))
	}
	if rows.Err() != nil || len(all) == 0 {
		return "a lock of another session"
	}
	return "a lock: " + strings.Join(all, ", ")
}

var literals = regexp.MustCompile(`'(?:[^']|'')*'?|\$\w*\$.*|\b\d[\d.]*`)

// withoutValues is the beginning of a query as it may be logged.
func withoutValues(query string) string {
	const most = 80
	text := []rune(strings.Join(strings.Fields(literals.ReplaceAllString(query, "?")), " "))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}

// collided: another process was making the same table, or the same row of
// versions, at the same moment.
func collided(err error) bool {
	switch sqlState(err) {
	case "23505", "42P07", "42710", "XX000", "40001", "40P01":
		return true
	}
	return false
}

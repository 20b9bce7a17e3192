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
	// lockMax is how long a statement of a migration waits for a lock. Meanwhile everyone who wants the table
	// waits behind it, commits too. Then it steps back for lockRest, so that they get through, and longer
	// each time, up to lockRestMax.
	lockMax     = 500 * time.Millisecond
	lockRest    = time.Second
	lockRestMax = 10 * time.Second
	// lockPoll is the interval of asking whether another process still migrates.
	lockPoll = 200 * time.Millisecond
	// tellAgain is how often Migrate repeats what it waits for.
	tellAgain = time.Minute
)

// lockNotAvailable is the SQLSTATE of a statement that got no lock in time.
const lockNotAvailable = "55P03"

const (
	lockTimeoutSQL = `SET lock_timeout = %d`
	// holdersSQL finds the sessions that have held locks on our tables for longer than a commit takes.
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

// migrator is the migrator of this dialect over a handle.
func (p *Store) migrator(db *sql.DB) (*goose.Provider, error) {
	return schema.Migrator(db, goose.DialectPostgres, "postgres", p.migrations)
}

// Migrate implements [schema.Store]. Several processes may call it; one at a time works.
// [patientConn.ExecContext] says what happens when another session, such as a backup, holds a lock.
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
	p *Store
	// db has patient connections.
	db *sql.DB
	// waitsFor is what tell reported last, and told is when.
	waitsFor string
	told     time.Time
}

// run migrates, alone among all processes. It refuses tables that it cannot bring up to date before it waits
// for anyone.
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

// tell reports what the migration waits for, when that changes and once in a while; "" is nothing any more.
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

// holders names the sessions that hold locks on our tables, as far as this user may see them.
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

// literals finds texts and numbers in a query; a text that is cut off reaches to its end.
var literals = regexp.MustCompile(`'(?:[^']|'')*'?|\$\w*\$.*|\b\d[\d.]*`)

// withoutValues is the beginning of a query with its literals replaced, so that it may be logged.
func withoutValues(query string) string {
	const most = 80
	text := []rune(strings.Join(strings.Fields(literals.ReplaceAllString(query, "?")), " "))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}

// collided reports whether an error is that of two processes that make the same table, or the same row of
// versions, at the same moment.
func collided(err error) bool {
	switch sqlState(err) {
	case "23505", "42P07", "42710", "XX000", "40001", "40P01":
		return true
	}
	return false
}

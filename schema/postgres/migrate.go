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

	"duly.dev/duly/internal/pause"
	"duly.dev/duly/schema"
)

const (
	// lockMax is how long a migration waits for a lock. All that want the table wait
	// behind it meanwhile, commits too; then it lets them by, for lockRest, and more
	// each time up to lockRestMax.
	lockMax     = 500 * time.Millisecond
	lockRest    = time.Second
	lockRestMax = 10 * time.Second
	// lockPoll is between looks whether another process still migrates.
	lockPoll = 200 * time.Millisecond
	// migrateTries bounds how often processes that migrate at once get in each other's way.
	migrateTries = 20
	// tellAgain is how often it is told what is still waited for.
	tellAgain = time.Minute
)

// migrationLock is the advisory lock of the one session that migrates a database.
const migrationLock = 0x64756c79 // duly

const (
	tryLockSQL = `SELECT pg_try_advisory_lock($1)`
	// holdersSQL tells who has held locks of our tables for longer than a commit.
	holdersSQL = `SELECT a.pid, COALESCE(a.application_name, ''), COALESCE(a.state, ''), COALESCE(a.query, '')
		FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid() AND COALESCE(a.xact_start < clock_timestamp() - INTERVAL '400 ms', TRUE)
		AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.pid = a.pid AND l.granted AND l.locktype = 'relation'
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND (c.relname IN ('plans', 'plan_steps', 'partitions', 'tasks', 'steps', 'goose_db_version') OR c.relname LIKE 'journal%'))
		ORDER BY a.xact_start LIMIT 3`
	invalidSQL = `SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid`
	dropSQL    = `DROP INDEX CONCURRENTLY IF EXISTS %s`
	// shortGCSQL: CockroachDB keeps old versions of a row for hours, and passes over
	// them at each read. Rows of partitions are rewritten at each commit.
	shortGCSQL = `ALTER TABLE partitions CONFIGURE ZONE USING gc.ttlseconds = 600`
)

// shortGCVersion is the migration that is of CockroachDB alone.
const shortGCVersion = 7

// CheckVersion implements [schema.Store].
func (p *Store) CheckVersion(ctx context.Context) error {
	m, err := p.Migrator()
	if err != nil {
		return err
	}
	have, err := p.TablesVersion(ctx)
	if err != nil && sqlState(err) != "42P01" {
		return err
	}
	return schema.CheckVersion(have, m)
}

// Migrator migrates the tables version by version, for tools and tests; a program calls
// Migrate, which waits for others.
func (p *Store) Migrator() (*goose.Provider, error) { return p.migrator(p.db) }

func (p *Store) migrator(db *sql.DB) (*goose.Provider, error) {
	return schema.Migrator(db, goose.DialectPostgres, "postgres",
		goose.NewGoMigration(shortGCVersion, &goose.GoFunc{RunDB: p.shortenGC}, nil),
		goose.NewGoMigration(oneJournalVersion, &goose.GoFunc{RunDB: p.mergeGenerations}, nil),
		goose.NewGoMigration(storageVersion, &goose.GoFunc{RunDB: p.setStorage}, nil))
}

func (p *Store) shortenGC(ctx context.Context, db *sql.DB) error {
	if p.dialect != "cockroach" {
		return nil
	}
	_, err := db.ExecContext(ctx, shortGCSQL)
	return err
}

// migrationDB is a database whose statements may take any time and wait for locks for
// that long; 0: any time too.
func (p *Store) migrationDB(lock time.Duration) *sql.DB {
	db := stdlib.OpenDB(*p.config, stdlib.OptionAfterConnect(settings(
		[]string{"SET statement_timeout = 0"}, []string{fmt.Sprintf("SET lock_timeout = %d", lock.Milliseconds())})))
	db.SetMaxOpenConns(3) // one has the lock, the migration tool takes up to two
	return db
}

// Migrate implements [schema.Store]. Processes may start at once, and one at a time migrates. A
// lock that another session holds, such as a backup, is tried for again and again, and
// let go in between.
func (p *Store) Migrate(ctx context.Context) error {
	m := migration{p: p, short: p.migrationDB(lockMax), long: p.migrationDB(0)}
	err := m.run(ctx)
	return errors.Join(err, m.short.Close(), m.long.Close())
}

// migration is one call of Migrate.
type migration struct {
	p           *Store
	short, long *sql.DB // which wait a little for locks, and for as long as it takes
	waitsFor    string  // as last told
	told        time.Time
}

func (m *migration) run(ctx context.Context) error {
	if m.p.dialect == "postgres" {
		alone, err := m.alone(ctx)
		if err != nil {
			return err
		}
		defer alone.Close() // the lock goes with the session, at the end of Migrate
	}
	rest := lockRest
	for try := 1; ; try++ {
		err := m.once(ctx)
		if err == nil {
			m.tell("")
			return nil
		}
		wait := schema.Pause
		switch {
		case sqlState(err) == "55P03":
			m.tell(m.holders(ctx))
			wait = func(ctx context.Context, _ int) error { return pause.For(ctx, rest) }
			rest = min(2*rest, lockRestMax)
		case try >= migrateTries || !collided(err):
			return err
		}
		if err := wait(ctx, try); err != nil {
			return fmt.Errorf("migrate: %w (waiting for %s)", err, m.waitsFor)
		}
	}
}

// alone waits until no other process migrates, and returns the session that says so.
// It asks instead of waiting in the server: a session that waits there holds up the building
// of an index, which waits for all statements that were begun before.
func (m *migration) alone(ctx context.Context) (*sql.Conn, error) {
	conn, err := m.long.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	for {
		var have bool
		if err := conn.QueryRowContext(ctx, tryLockSQL, migrationLock).Scan(&have); err != nil {
			return nil, errors.Join(fmt.Errorf("migrate: %w", err), conn.Close())
		}
		if have {
			return conn, nil
		}
		m.tell("another process that migrates")
		if err := pause.For(ctx, lockPoll); err != nil {
			return nil, errors.Join(fmt.Errorf("migrate: %w (waiting for %s)", err, m.waitsFor), conn.Close())
		}
	}
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
	rows, err := m.short.QueryContext(ctx, holdersSQL)
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

// once brings the tables up to the newest embedded version, and refuses a
// database that a newer binary has been at.
func (m *migration) once(ctx context.Context) error {
	quick, err := m.p.migrator(m.short)
	if err != nil {
		return err
	}
	slow, err := m.p.migrator(m.long)
	if err != nil {
		return err
	}
	have, err := schema.HaveVersion(ctx, quick)
	if err != nil {
		return err
	}
	for _, source := range quick.ListSources() {
		if source.Version <= have {
			continue
		}
		with := quick
		indexes, err := concurrently(source)
		if err != nil {
			return err
		}
		if len(indexes) > 0 && m.p.dialect == "postgres" {
			with = slow
			if err := m.dropInvalid(ctx, indexes); err != nil {
				return err
			}
		}
		if source.Version == storageVersion {
			with = slow // it waits for a vacuum, and no commit waits for it
		}
		if _, err := with.UpTo(ctx, source.Version); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	return nil
}

var buildsIndex = regexp.MustCompile(`(?mi)^create (?:unique )?index concurrently if not exists (\w+)`)

// concurrently names the indexes that a migration builds while commits go on. Such a
// build waits for every transaction that was there before, for as long as it takes,
// and nothing waits for it.
func concurrently(source *goose.Source) (indexes []string, err error) {
	if source.Type != goose.TypeSQL {
		return nil, nil
	}
	text, err := schema.Migration("postgres", source.Path)
	if err != nil {
		return nil, err
	}
	for _, found := range buildsIndex.FindAllStringSubmatch(text, -1) {
		indexes = append(indexes, found[1])
	}
	return indexes, nil
}

// dropInvalid drops what is left of builds that were cut off: IF NOT EXISTS would take
// it for the index.
func (m *migration) dropInvalid(ctx context.Context, indexes []string) error {
	for _, index := range indexes {
		var invalid int
		if err := m.long.QueryRowContext(ctx, invalidSQL, index).Scan(&invalid); err != nil {
			return fmt.Errorf("index %s: %w", index, err)
		}
		if invalid == 0 {
			continue
		}
		if _, err := m.long.ExecContext(ctx, fmt.Sprintf(dropSQL, index)); err != nil {
			return fmt.Errorf("index %s, of which a part is left: %w", index, err)
		}
	}
	return nil
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

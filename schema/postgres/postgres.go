// Package postgres is the state store on PostgreSQL, and by the common subset of SQL on
// CockroachDB.
//
// It goes through pgx. Reading and what the dialects share is in package schema; the
// contract is [schema.Store], held by schema/storetest. Begin reading at commit.go: the
// fence and what it fences. What is done about an error of the database is decided by one
// table in errors.go. The columns that a commit writes are listed in encode.go.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	crdbpgx "github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

var _ schema.Store = (*Store)(nil)

// Store implements [schema.Store] on PostgreSQL or CockroachDB.
type Store struct {
	*schema.Base
	// pool is for commits, and for what owners read and change by key.
	pool *pgxpool.Pool
	// asking is for people, behind whom no owner has to wait.
	asking *pgxpool.Pool
	// db and askDB are the two pools through database/sql.
	db    *sql.DB
	askDB *sql.DB
	// config makes a connection on which nothing is set.
	config *pgx.ConnConfig
	tell   func(string)
	// migrations make the tables; nil: the files of this binary do.
	migrations fs.FS
	sockets    sockets
	pooler     poolerCheck
	dialect    string
	version    string
	tx         pgx.TxOptions
	sql        *statements
	// encoded holds *encoded, the memory of commits.
	encoded sync.Pool
	// tryMax bounds one sending of a commit, after which a server that does not answer is given up.
	tryMax time.Duration
}

// minPostgres is the oldest PostgreSQL, as its server_version_num.
const minPostgres = 140000

// askingConns is how many connections there are for people, whose lists, counts and books take long.
const askingConns = 2 * schema.AskingEach

// Open opens the store of a URL postgres://…. It does not migrate.
func Open(ctx context.Context, url string, o schema.Options) (*Store, error) {
	p := &Store{
		sql: newStatements(cmp.Or(o.Tables, schema.Columns())), migrations: o.Migrations, tx: pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, tell: o.Tell,
	}
	p.encoded.New = func() any { return newEncoded(p.sql) }
	cfg, err := poolConfig(url, &p.sockets)
	if err != nil {
		return nil, err
	}
	p.config = cfg.ConnConfig.Copy()
	p.pooler.config = p.config
	if o.Serializable {
		p.tx.IsoLevel = pgx.Serializable
	}
	timeout := cmp.Or(o.Timeout, 30*time.Second)
	p.tryMax = 2 * timeout
	// Before setUp: the pool for people has settings of its own.
	asking := cfg.Copy()
	cfg.MaxConns = int32(cmp.Or(o.MaxConns, 8))
	setUp(cfg, &p.pooler, p.tx.IsoLevel, timeout)
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := p.detect(ctx); err != nil {
		p.pool.Close()
		return nil, err
	}
	asking.MaxConns, asking.MinConns, asking.MinIdleConns = askingConns, 0, 0 // made when they are wanted
	setUpAsking(asking, &p.pooler, timeout)
	if p.asking, err = pgxpool.NewWithConfig(ctx, asking); err != nil {
		p.pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	p.db, p.askDB = stdlib.OpenDBFromPool(p.pool), stdlib.OpenDBFromPool(p.asking)
	p.Base = schema.NewBase(shared, p.sql.of, p.transact, p.db, p.db, p.askDB, p.askDB)
	if o.Chain {
		p.KeepChain()
	}
	return p, nil
}

// shared is this dialect. CockroachDB's is the same.
var shared = schema.Dialect{
	Params: dollars, List: func(v any) any { return v }, Among: among, Time: func(i core.Instant) any { return i.Time() },
	Again: worthRetrying, RolledBack: retryable, Redact: redact,
	Rows: asRows, RowArgs: listArgs,
	Lock: ` FOR UPDATE`, Renew: `UPDATE installation SET id = ?1, namespace = '', nats = '', used_by = '', beat = '' WHERE id = ?2`,
	Snapshot: &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
}

// detect asks the server what it is and refuses versions that are too old.
func (p *Store) detect(ctx context.Context) error {
	if err := p.pool.QueryRow(ctx, `SELECT version()`).Scan(&p.version); err != nil {
		return fmt.Errorf("connect to database: %w", err)
	}
	if strings.Contains(p.version, "CockroachDB") {
		p.dialect = "cockroach"
		var major, minor int
		if i := strings.Index(p.version, " v"); i >= 0 {
			_, _ = fmt.Sscanf(p.version[i:], " v%d.%d", &major, &minor) // zero is refused below
		}
		if major < 24 || major == 24 && minor < 1 {
			return &schema.ServerError{Have: p.version, Want: "CockroachDB 24.1"}
		}
		return nil
	}
	p.dialect = "postgres"
	var number int
	if err := p.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::INT8`).Scan(&number); err != nil {
		return fmt.Errorf("version of the database: %w", err)
	}
	if number < minPostgres {
		return &schema.ServerError{Have: p.version, Want: "PostgreSQL 14"}
	}
	return nil
}

// among is Dialect.Among.
func among(table, column string) string {
	return ` FROM ` + table + ` WHERE partition = ?1 AND ` + column + ` ` + inList(column)
}

// asRows is Dialect.Rows: an array parameter for each column.
func asRows(first int, columns ...string) string {
	arrays, names := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		arrays[i], names[i] = fmt.Sprintf("?%d::%s[]", first+i, typ), name
	}
	return `unnest(` + strings.Join(arrays, ", ") + `) AS u(` + strings.Join(names, ", ") + `)`
}

// listArgs is Dialect.RowArgs.
func listArgs(lists ...any) []any {
	for i := range lists {
		if instants, ok := lists[i].([]core.Instant); ok {
			times := make([]time.Time, len(instants))
			for k, at := range instants {
				times[k] = at.Time()
			}
			lists[i] = times
		}
	}
	return lists
}

// inList is the condition that a column, number or id, is in the list ?2.
func inList(column string) string {
	if column == "id" {
		return `= ANY(?2::TEXT[])`
	}
	return `= ANY(?2::INT8[])`
}

// dollars is Dialect.Params. No statement has a question mark other than of a parameter.
func dollars(query string) string { return strings.ReplaceAll(query, "?", "$") }

// Dialect implements [schema.Store].
func (p *Store) Dialect() string { return p.dialect }

// Version implements [schema.Store].
func (p *Store) Version() string { return p.version }

// Ping implements [schema.Store].
func (p *Store) Ping(ctx context.Context) error { return p.pool.Ping(ctx) }

// Close implements [schema.Store]. It waits for a server that does not answer for closeMax.
func (p *Store) Close() error {
	impatience := time.AfterFunc(closeMax, p.sockets.cut)
	defer impatience.Stop()
	err := errors.Join(p.db.Close(), p.askDB.Close())
	p.pool.Close()
	p.asking.Close()
	return err
}

// Partitions implements [schema.Store].
func (p *Store) Partitions(ctx context.Context, n int) error {
	return p.run(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO partitions (partition) SELECT g FROM generate_series(0, $1::INT8 - 1) AS g
			WHERE NOT EXISTS (SELECT 1 FROM partitions) ON CONFLICT DO NOTHING`, n)
		if err != nil {
			return err
		}
		var have int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM partitions`).Scan(&have); err != nil {
			return err
		}
		return schema.CheckPartitions(have, n)
	})
}

// transact is the schema.Transact of this store.
func (p *Store) transact(ctx context.Context, do func(context.Context, schema.Tx) error) error {
	return p.run(ctx, func(tx pgx.Tx) error { return do(ctx, small{tx}) })
}

// small implements [schema.Tx].
type small struct{ tx pgx.Tx }

func (t small) Row(ctx context.Context, query string, args ...any) schema.Row {
	return t.tx.QueryRow(ctx, dollars(query), args...)
}

func (t small) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, dollars(query), args...)
	return tag.RowsAffected(), err
}

// run runs a small transaction, and again while the database rolls it back in favour of another.
func (p *Store) run(ctx context.Context, do func(pgx.Tx) error) error {
	if p.dialect == "cockroach" {
		return crdbpgx.ExecuteTx(ctx, p.pool, p.tx, do)
	}
	for try := 0; ; try++ {
		err := pgx.BeginTxFunc(ctx, p.pool, p.tx, do)
		if err == nil || !retryable(err) || ctx.Err() != nil {
			return err
		}
		if err := schema.Pause(ctx, try); err != nil {
			return err
		}
	}
}

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
	pool   *pgxpool.Pool   // commits, and what their owner reads and changes by key
	asking *pgxpool.Pool   // for people who ask, behind whom no owner waits
	db     *sql.DB         // the same as pool
	askDB  *sql.DB         // the same as asking
	config *pgx.ConnConfig // of a connection that nothing is set on
	tell   func(string)
	// migrations make the tables; nil: the files of this binary do.
	migrations fs.FS
	sockets    sockets
	pooler     poolerCheck
	dialect    string
	version    string
	tx         pgx.TxOptions
	sql        *statements
	encoded    sync.Pool     // of *encoded: memory of commits
	tryMax     time.Duration // of one sending of a commit: a server that does not answer is given up
}

// minPostgres is the oldest PostgreSQL, as its server_version_num.
const minPostgres = 140000

// askingConns is how many connections there are for people who ask: lists, counts and
// books take long.
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
	p.Base = schema.NewBase(shared, p.sql.of, p.db, p.db, p.askDB, p.askDB)
	if o.Chain {
		p.KeepChain()
	}
	return p, nil
}

var shared = schema.Dialect{
	Params: dollars, List: func(v any) any { return v }, Among: among, Time: func(i core.Instant) any { return i.Time() },
	Again: again, RolledBack: retryable, Redact: redact,
	Rows: asRows, RowArgs: listArgs,
	Snapshot: &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
}

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

// among is that of [schema.Dialect].
func among(table, column string) string {
	return ` FROM ` + table + ` WHERE partition = ?1 AND ` + column + ` ` + inList(column)
}

// asRows is that of [schema.Dialect].
func asRows(first int, columns ...string) string {
	arrays, names := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		arrays[i], names[i] = fmt.Sprintf("?%d::%s[]", first+i, typ), name
	}
	return `unnest(` + strings.Join(arrays, ", ") + `) AS u(` + strings.Join(names, ", ") + `)`
}

// listArgs are lists as the parameters of those rows.
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

func inList(column string) string {
	if column == "id" {
		return `= ANY(?2::TEXT[])`
	}
	return `= ANY(?2::INT8[])`
}

func dollars(query string) string { return strings.ReplaceAll(query, "?", "$") }

// Dialect implements [schema.Store].
func (p *Store) Dialect() string { return p.dialect }

// Version implements [schema.Store].
func (p *Store) Version() string { return p.version }

// Ping implements [schema.Store].
func (p *Store) Ping(ctx context.Context) error { return p.pool.Ping(ctx) }

// Close implements [schema.Store]. A server that does not answer holds it up for closeMax.
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

// TakeOver implements [schema.Store].
func (p *Store) TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	done := p.Taking(partition)
	defer done()
	p.ForgetPurged(partition)
	var st core.PartitionState
	var continued func()
	err := p.run(ctx, func(tx pgx.Tx) error {
		var err error
		st, err = p.ScanPartition(tx.QueryRow(ctx, dollars(p.PartitionSQL())+` FOR UPDATE`, partition))
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("partition %d: %w", partition, core.ErrNotFound)
		}
		if err != nil {
			return err
		}
		st.Take(c)
		continued, err = p.WriteTakeOver(ctx, takeOverTx{tx}, &st, c.At)
		return err
	})
	if err == nil {
		continued()
	}
	return st, err
}

// takeOverTx implements [schema.TakeOverTx].
type takeOverTx struct{ tx pgx.Tx }

func (t takeOverTx) Row(ctx context.Context, query string, args []any, into ...any) error {
	return t.tx.QueryRow(ctx, dollars(query), args...).Scan(into...)
}

func (t takeOverTx) Exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.Exec(ctx, dollars(query), args...)
	return err
}

// Bind implements [schema.Store].
func (p *Store) Bind(ctx context.Context, namespace string) error {
	var id, bound string
	err := p.run(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, dollars(schema.BindSQL), namespace); err != nil {
			return err
		}
		return tx.QueryRow(ctx, schema.InstallationSQL).Scan(&id, &bound)
	})
	_, err = schema.CheckInstallation(id, bound, namespace, err)
	return err
}

// Renew implements [schema.Store].
func (p *Store) Renew(ctx context.Context, was string) (string, error) {
	id, found := schema.NewInstallation(), ""
	err := p.run(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, qRenewPG, id, was); err != nil {
			return err
		}
		return tx.QueryRow(ctx, schema.InstallationSQL).Scan(&found, new(string))
	})
	return schema.CheckRenewed(id, found, was, err)
}

// Release implements [schema.Store].
func (p *Store) Release(ctx context.Context, partition int, epoch int64) error {
	return p.run(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE partitions SET owner = '' WHERE partition = $1 AND epoch = $2`, partition, epoch)
		return err
	})
}

// PutPlan implements [schema.Store].
func (p *Store) PutPlan(ctx context.Context, plan core.Plan) error {
	spec, err := schema.EncodePlan(&plan)
	if err != nil {
		return err
	}
	return p.run(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO plans (name, version, spec) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, plan.Name, plan.Version, spec)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			var have []byte
			if err := tx.QueryRow(ctx, `SELECT spec FROM plans WHERE name = $1 AND version = $2`, plan.Name, plan.Version).Scan(&have); err != nil {
				return err
			}
			return schema.SamePlan(&plan, have, spec)
		}
		for i := range plan.Steps {
			s := &plan.Steps[i]
			if _, err := tx.Exec(ctx, `INSERT INTO plan_steps (plan, version, ordinal, name, agent, undoable, after_steps, complete_by_ms, attempts_max, on_exhausted, kind)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, plan.Name, plan.Version, i, s.Name, s.Agent, s.Undoable, schema.After(&plan, i),
				s.CompleteBy.Milliseconds(), s.AttemptsMax, string(s.OnExhausted), schema.KindWord(s.Kind)); err != nil {
				return err
			}
		}
		return nil
	})
}

// run runs a small transaction, tried again while the database asks for it.
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

package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	crdbpgx "github.com/cockroachdb/cockroach-go/v2/crdb/crdbpgxv5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"duly.dev/duly/internal/core"
)

// postgres is the store on PostgreSQL or CockroachDB.
type postgres struct {
	running
	commits
	asked
	pool    *pgxpool.Pool
	reading *pgxpool.Pool   // of asked
	config  *pgx.ConnConfig // of a connection that nothing is set on
	tell    func(string)
	sockets sockets
	pooler  poolerCheck
	dialect string
	version string
	tx      pgx.TxOptions
	encoded sync.Pool     // of *encoded: memory of commits
	tryMax  time.Duration // of one sending of a commit: a server that does not answer is given up
}

// minPostgres is the oldest PostgreSQL, as its server_version_num.
const minPostgres = 140000

func openPostgres(ctx context.Context, url string, o Options) (Store, error) {
	p := &postgres{encoded: sync.Pool{New: func() any { return newEncoded() }}, tx: pgx.TxOptions{IsoLevel: pgx.ReadCommitted}}
	cfg, err := poolConfig(url, &p.sockets)
	if err != nil {
		return nil, err
	}
	p.config, p.tell = cfg.ConnConfig.Copy(), o.Tell
	cfg.MaxConns = int32(orInt(o.MaxConns, 8))
	if o.Serializable {
		p.tx.IsoLevel = pgx.Serializable
	}
	timeout := o.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	p.tryMax = 2 * timeout
	p.pooler.config = p.config
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // see setUp
	cfg.AfterConnect = inTurn(p.pooler.check, setUp(p.tx.IsoLevel, timeout))
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := p.detect(ctx); err != nil {
		p.pool.Close()
		return nil, err
	}
	if err := p.openReading(ctx, cfg, timeout); err != nil {
		p.pool.Close()
		return nil, err
	}
	p.reader = p.readerOf(p.pool)
	return p, nil
}

// openReading opens the connections of asked, which are made when they are wanted.
func (p *postgres) openReading(ctx context.Context, cfg *pgxpool.Config, timeout time.Duration) (err error) {
	reading := cfg.Copy()
	reading.ConnConfig.DefaultQueryExecMode = p.config.DefaultQueryExecMode
	reading.MaxConns, reading.MinConns, reading.MinIdleConns = askedConns, 0, 0
	reading.AfterConnect = inTurn(p.pooler.check, settings([]string{fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds())},
		[]string{"SET idle_in_transaction_session_timeout = 60000"}))
	if p.reading, err = pgxpool.NewWithConfig(ctx, reading); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	r := p.readerOf(p.reading)
	p.asked.of = &r
	return nil
}

func (p *postgres) readerOf(pool *pgxpool.Pool) reader {
	return reader{
		db: stdlib.OpenDBFromPool(pool), params: dollars, list: func(v any) any { return v },
		among: amongSQL, time: func(i core.Instant) any { return i.Time() },
	}
}

func (p *postgres) detect(ctx context.Context) error {
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
			return fmt.Errorf("database: %s, want CockroachDB 24.1 or newer", p.version)
		}
		return nil
	}
	p.dialect = "postgres"
	var number int
	if err := p.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::INT8`).Scan(&number); err != nil {
		return fmt.Errorf("version of the database: %w", err)
	}
	if number < minPostgres {
		return fmt.Errorf("database: %s, want PostgreSQL 14 or newer", p.version)
	}
	return nil
}

// amongSQL is that of a reader, see there.
func amongSQL(table, column string) string {
	return ` FROM ` + table + ` WHERE partition = ?1 AND ` + column + ` ` + inList(column)
}

func inList(column string) string {
	if column == "id" {
		return `= ANY(?2::TEXT[])`
	}
	return `= ANY(?2::INT8[])`
}

func dollars(query string) string { return strings.ReplaceAll(query, "?", "$") }

func orInt(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// Dialect implements Store.
func (p *postgres) Dialect() string { return p.dialect }

// Version implements Store.
func (p *postgres) Version() string { return p.version }

// Ping implements Store.
func (p *postgres) Ping(ctx context.Context) error { return p.pool.Ping(ctx) }

// Close implements Store. A server that does not answer holds it up for closeMax.
func (p *postgres) Close() error {
	impatience := time.AfterFunc(closeMax, p.sockets.cut)
	defer impatience.Stop()
	err := errors.Join(p.db.Close(), p.asked.of.db.Close())
	p.pool.Close()
	p.reading.Close()
	return err
}

// Partitions implements Store.
func (p *postgres) Partitions(ctx context.Context, n int) error {
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
		return checkPartitions(have, n)
	})
}

func checkPartitions(have, want int) error {
	if have != want {
		return fmt.Errorf("partitions: the database has %d, the configuration says %d; the number is fixed for the life of the data", have, want)
	}
	return nil
}

// TakeOver implements Store.
func (p *postgres) TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	p.purged.forget(partition)
	var st core.PartitionState
	err := p.run(ctx, func(tx pgx.Tx) error {
		var err error
		st, err = scanPartition(tx.QueryRow(ctx, dollars(qPartition)+` FOR UPDATE`, partition))
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("partition %d: %w", partition, core.ErrNotFound)
		}
		if err != nil {
			return err
		}
		st.Take(c)
		_, err = tx.Exec(ctx, dollars(qTakeOver), p.takeOverArgs(&st)...)
		return err
	})
	return st, err
}

// Bind implements Store.
func (p *postgres) Bind(ctx context.Context, namespace string) error {
	var id, bound string
	err := p.run(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, dollars(qBindInstallation), namespace); err != nil {
			return err
		}
		return tx.QueryRow(ctx, qInstallation).Scan(&id, &bound)
	})
	_, err = checkInstallation(id, bound, namespace, err)
	return err
}

// Renew implements Store.
func (p *postgres) Renew(ctx context.Context, was string) (string, error) {
	id, found := newInstallation(), ""
	err := p.run(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, qRenewPG, id, was); err != nil {
			return err
		}
		return tx.QueryRow(ctx, qInstallation).Scan(&found, new(string))
	})
	return checkRenewed(id, found, was, err)
}

// Release implements Store.
func (p *postgres) Release(ctx context.Context, partition int, epoch int64) error {
	return p.run(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE partitions SET owner = '' WHERE partition = $1 AND epoch = $2`, partition, epoch)
		return err
	})
}

// PutPlan implements Store.
func (p *postgres) PutPlan(ctx context.Context, plan core.Plan) error {
	spec, err := encodePlan(&plan)
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
			return samePlan(&plan, have, spec)
		}
		for i := range plan.Steps {
			s := &plan.Steps[i]
			if _, err := tx.Exec(ctx, `INSERT INTO plan_steps (plan, version, ordinal, name, agent, undoable, after_steps, complete_by_ms, attempts_max, on_exhausted)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, plan.Name, plan.Version, i, s.Name, s.Agent, s.Undoable, after(&plan, i),
				s.CompleteBy.Milliseconds(), s.AttemptsMax, string(s.OnExhausted)); err != nil {
				return err
			}
		}
		return nil
	})
}

// run runs a small transaction, tried again while the database asks for it.
func (p *postgres) run(ctx context.Context, do func(pgx.Tx) error) error {
	if p.dialect == "cockroach" {
		return crdbpgx.ExecuteTx(ctx, p.pool, p.tx, do)
	}
	for try := 0; ; try++ {
		err := pgx.BeginTxFunc(ctx, p.pool, p.tx, do)
		if err == nil || !retryable(err) || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

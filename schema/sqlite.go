package schema

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
)

// sqlite is the store of one process: one connection writes, others read.
type sqlite struct {
	running
	commits
	asked
	writer  *sql.DB
	version string
	turn    chan struct{} // held by whoever writes
	commit  *liteCommit
	wal     *liteWal
}

// litePragmas hold for every connection. A commit is durable when it returns
// (FULL), also in a WAL; no commit copies the WAL into the tables, because liteWal
// does. Of a WAL that a long read made big, only what is used as a rule is kept.
var litePragmas = []string{
	"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(0)", "journal_size_limit(134217728)", "temp_store(MEMORY)",
	"cache_size(-65536)",
}

// liteWalBusy ends litePragmas for the connection that copies the WAL: while it
// waits for a reader, commits wait for it.
const liteWalBusy = "busy_timeout(20)"

// liteChecked ends litePragmas for the connection that commits: the tables' checks
// are storable's as well. A check that calls a function costs more than the call:
// SQLite keeps of each page what it takes to undo the statement.
const liteChecked = "ignore_check_constraints(1)"

func openSQLite(ctx context.Context, path string) (Store, error) {
	if path == "" {
		return nil, errors.New("database URL: sqlite: without a path")
	}
	uri := "file:" + (&url.URL{Path: path}).EscapedPath()
	dsn := uri + "?_pragma=" + strings.Join(litePragmas, "&_pragma=")
	s := &sqlite{turn: make(chan struct{}, 1)}
	var err error
	if s.writer, err = sql.Open("sqlite", dsn+"&_txlock=immediate"); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s.writer.SetMaxOpenConns(1)
	if err := s.writer.QueryRowContext(ctx, `SELECT 'SQLite ' || sqlite_version()`).Scan(&s.version); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.writer.Close())
	}
	conn, err := openLiteConn(uri, append(slices.Clone(litePragmas), liteChecked))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.writer.Close())
	}
	s.commit = newLiteCommit(conn)
	db, err := sql.Open("sqlite", dsn+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), conn.Close(), s.writer.Close())
	}
	db.SetMaxOpenConns(4)
	asking, err := sql.Open("sqlite", dsn+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close(), conn.Close(), s.writer.Close())
	}
	asking.SetMaxOpenConns(askedConns)
	copier, err := openLiteConn(uri, append(slices.Clone(litePragmas), liteWalBusy))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), asking.Close(), db.Close(), conn.Close(), s.writer.Close())
	}
	s.wal = newLiteWal(copier, s.takeTurn, s.endTurn)
	s.reader = liteReader(db)
	r := liteReader(asking)
	s.asked.of = &r
	return s, nil
}

func liteReader(db *sql.DB) reader {
	return reader{
		db: db, params: func(q string) string { return q },
		list: func(v any) any {
			b, _ := json.Marshal(v) // numbers and names always can be
			return string(b)
		},
		among: func(table, column string) string {
			return ` FROM ` + table + ` WHERE partition = ?1 AND ` + column + ` ` + liteList
		},
		time: func(i core.Instant) any { return int64(i) },
	}
}

// Dialect implements Store.
func (s *sqlite) Dialect() string { return "sqlite" }

// Version implements Store.
func (s *sqlite) Version() string { return s.version }

// Ping implements Store.
func (s *sqlite) Ping(ctx context.Context) error {
	return errors.Join(s.writer.PingContext(ctx), s.wal.err())
}

// Close implements Store. It waits for the commit that is under way, and for what
// is being copied out of the WAL.
func (s *sqlite) Close() error {
	s.wal.stop()
	s.turn <- struct{}{}
	defer s.endTurn()
	return errors.Join(s.commit.conn.Close(), s.db.Close(), s.asked.of.db.Close(), s.writer.Close(), s.wal.Close())
}

// takeTurn waits for the turn to write.
func (s *sqlite) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sqlite) endTurn() { <-s.turn }

// run runs one transaction; it waits for its turn, because a second writer in
// this process would only wait inside SQLite.
func (s *sqlite) run(ctx context.Context, do func(*sql.Tx) error) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer s.wal.grown()
	if err := do(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Partitions implements Store.
func (s *sqlite) Partitions(ctx context.Context, n int) error {
	return s.run(ctx, func(tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM partitions`).Scan(&have); err != nil {
			return err
		}
		if have > 0 {
			return checkPartitions(have, n)
		}
		for p := range n {
			if _, err := tx.ExecContext(ctx, `INSERT INTO partitions (partition) VALUES (?1)`, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// TakeOver implements Store.
func (s *sqlite) TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	s.purged.forget(partition)
	var st core.PartitionState
	err := s.run(ctx, func(tx *sql.Tx) error {
		var err error
		st, err = scanPartition(tx.QueryRowContext(ctx, qPartition, partition))
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("partition %d: %w", partition, core.ErrNotFound)
		}
		if err != nil {
			return err
		}
		st.Take(c)
		_, err = tx.ExecContext(ctx, qTakeOver, s.takeOverArgs(&st)...)
		return err
	})
	return st, err
}

// Bind implements Store.
func (s *sqlite) Bind(ctx context.Context, namespace string) error {
	var id, bound string
	err := s.run(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, qBindInstallation, namespace); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, qInstallation).Scan(&id, &bound)
	})
	_, err = checkInstallation(id, bound, namespace, err)
	return err
}

const qRenew = `UPDATE installation SET id = ?1, namespace = '' WHERE id = ?2`

// Renew implements Store.
func (s *sqlite) Renew(ctx context.Context, was string) (string, error) {
	id, found := newInstallation(), ""
	err := s.run(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, qRenew, id, was); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, qInstallation).Scan(&found, new(string))
	})
	return checkRenewed(id, found, was, err)
}

// Release implements Store.
func (s *sqlite) Release(ctx context.Context, partition int, epoch int64) error {
	return s.run(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE partitions SET owner = '' WHERE partition = ?1 AND epoch = ?2`, partition, epoch)
		return err
	})
}

// PutPlan implements Store.
func (s *sqlite) PutPlan(ctx context.Context, plan core.Plan) error {
	spec, err := encodePlan(&plan)
	if err != nil {
		return err
	}
	return s.run(ctx, func(tx *sql.Tx) error {
		var have []byte
		err := tx.QueryRowContext(ctx, qPlan, plan.Name, plan.Version).Scan(&have)
		if err == nil {
			return samePlan(&plan, have, spec)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO plans (name, version, spec) VALUES (?1, ?2, ?3)`, plan.Name, plan.Version, spec); err != nil {
			return err
		}
		for i := range plan.Steps {
			p := &plan.Steps[i]
			if _, err := tx.ExecContext(ctx, `INSERT INTO plan_steps (plan, version, ordinal, name, agent, undoable, after_steps, complete_by_ms, attempts_max, on_exhausted)
				VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`, plan.Name, plan.Version, i, p.Name, p.Agent, p.Undoable, after(&plan, i),
				p.CompleteBy.Milliseconds(), p.AttemptsMax, string(p.OnExhausted)); err != nil {
				return err
			}
		}
		return nil
	})
}

// liteList is a list as one parameter, liteChosen the rows whose number is in it.
const (
	liteList   = `IN (SELECT value FROM json_each(?2))`
	liteChosen = `partition = ?1 AND number ` + liteList
)

// Purge implements Store.
func (s *sqlite) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	return s.purge(ctx, partition, detail, row, limit, func(c *purgeChoice) (touched int, err error) {
		err = s.run(ctx, func(tx *sql.Tx) error {
			touched, err = s.forget(ctx, tx, partition, epoch, c, detail, row)
			return err
		})
		return touched, err
	})
}

// forget is the purge itself, while nobody else writes.
func (s *sqlite) forget(ctx context.Context, tx *sql.Tx, partition int, epoch int64, c *purgeChoice, detail, row core.Instant) (int, error) {
	res, err := tx.ExecContext(ctx, `UPDATE partitions SET forgotten = max(forgotten, ?3) WHERE partition = ?1 AND epoch = ?2`, partition, epoch, c.forgotten)
	if err != nil {
		return 0, err
	}
	if ours, err := res.RowsAffected(); err != nil || ours == 0 {
		return 0, err
	}
	res, err = tx.ExecContext(ctx, qForgetRows+liteChosen+andDead, partition, s.list(c.rows), int64(row))
	if err != nil {
		return 0, err
	}
	gone, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	if c.inputs {
		if _, err := tx.ExecContext(ctx, qForgetInputs+liteChosen+andOld, partition, s.list(c.details), int64(detail)); err != nil {
			return 0, err
		}
	}
	rows, err := tx.QueryContext(ctx, qForgetDetails+liteChosen+andOld, partition, s.list(c.details), int64(detail))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var forgotten []int64
	for rows.Next() {
		var number int64
		if err := rows.Scan(&number); err != nil {
			return 0, err
		}
		forgotten = append(forgotten, number)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, qForgetJournal+liteChosen, partition, s.list(forgotten))
	return int(gone) + len(forgotten), err
}

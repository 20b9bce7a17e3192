package pgledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackMax bounds a rollback, which must be tried also after the end of the command's time.
const rollbackMax = 2 * time.Second

// database is what a ledger needs of a driver.
type database[T any] interface {
	begin(ctx context.Context, isolation sql.IsolationLevel) (T, error)
	exec(ctx context.Context, tx T, text string, args ...any) (rows int64, err error)
	row(ctx context.Context, tx T, text string, args []any, to ...any) (found bool, err error)
	lend(tx T) T // what work gets
	commit(ctx context.Context, tx T) error
	rollback(tx T)
	alone(ctx context.Context, text string, args ...any) (rows int64, err error) // a transaction by itself
}

// level is an isolation level in pgx's words.
func level(isolation sql.IsolationLevel) (pgx.TxIsoLevel, error) {
	switch isolation {
	case sql.LevelDefault:
		return "", nil
	case sql.LevelReadCommitted:
		return pgx.ReadCommitted, nil
	case sql.LevelRepeatableRead:
		return pgx.RepeatableRead, nil
	case sql.LevelSerializable:
		return pgx.Serializable, nil
	}
	return "", fmt.Errorf("ledger: Options.Isolation: %v, want Default, Read Committed, Repeatable Read or Serializable", isolation)
}

type pgxPool struct{ pool *pgxpool.Pool }

func (p pgxPool) begin(ctx context.Context, isolation sql.IsolationLevel) (pgx.Tx, error) {
	iso, err := level(isolation)
	if err != nil {
		return nil, err
	}
	return p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: iso})
}

func (pgxPool) exec(ctx context.Context, tx pgx.Tx, text string, args ...any) (int64, error) {
	tag, err := tx.Exec(ctx, text, args...)
	return tag.RowsAffected(), err
}

func (pgxPool) row(ctx context.Context, tx pgx.Tx, text string, args []any, to ...any) (bool, error) {
	err := tx.QueryRow(ctx, text, args...).Scan(to...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (pgxPool) lend(tx pgx.Tx) pgx.Tx { return lent{tx} }

func (pgxPool) commit(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }

func (pgxPool) rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackMax)
	defer cancel()
	_ = tx.Rollback(ctx) // the server does it, if the connection is lost
}

func (p pgxPool) alone(ctx context.Context, text string, args ...any) (int64, error) {
	tag, err := p.pool.Exec(ctx, text, args...)
	return tag.RowsAffected(), err
}

// lent is a transaction that its user cannot end.
type lent struct{ pgx.Tx }

func (lent) Commit(context.Context) error   { return errTheirs }
func (lent) Rollback(context.Context) error { return errTheirs }

type sqlDB struct{ db *sql.DB }

func (s sqlDB) begin(ctx context.Context, isolation sql.IsolationLevel) (*sql.Tx, error) {
	return s.db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
}

func (sqlDB) exec(ctx context.Context, tx *sql.Tx, text string, args ...any) (int64, error) {
	return affected(tx.ExecContext(ctx, text, args...))
}

func (sqlDB) row(ctx context.Context, tx *sql.Tx, text string, args []any, to ...any) (bool, error) {
	err := tx.QueryRowContext(ctx, text, args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (sqlDB) lend(tx *sql.Tx) *sql.Tx { return tx }

func (sqlDB) commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

func (sqlDB) rollback(tx *sql.Tx) { _ = tx.Rollback() } // the server does it, if the connection is lost

func (s sqlDB) alone(ctx context.Context, text string, args ...any) (int64, error) {
	return affected(s.db.ExecContext(ctx, text, args...))
}

func affected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tables are the effects, and of each key its result, or NULL where it was undone. Instances that start together make them in
// turn.
const tables = `
SELECT pg_advisory_xact_lock(7310);
CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, cents BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS charge_ledger (key TEXT PRIMARY KEY, result JSONB)`

// locked is a key's turn: dos and undos of one key come one after the other, on all instances.
const locked = `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`

// ledger has the effects and what is known of keys in one database, so that they are committed together: there is no moment
// in which an effect stands and the ledger does not say so.
type ledger struct{ pool *pgxpool.Pool }

func newLedger(ctx context.Context, pool *pgxpool.Pool) (*ledger, error) {
	if _, err := pool.Exec(ctx, tables); err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	return &ledger{pool}, nil
}

// do makes the effect of a key, once: another do of the key gets the first one's result.
func (l *ledger) do(ctx context.Context, key string, cents int64, slow bool) (result json.RawMessage, err error) {
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, locked, key); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		err := tx.QueryRow(ctx, `SELECT result FROM charge_ledger WHERE key = $1`, key).Scan(&result)
		switch {
		case err == nil && result == nil:
			return &refusal{410, "the key was undone"}
		case err == nil || !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		if slow {
			if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.1)`); err != nil { // the bank thinks
				return err
			}
		}
		if _, err := tx.Exec(ctx, `INSERT INTO charges (key, cents) VALUES ($1, $2)`, key, cents); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `INSERT INTO charge_ledger (key, result) VALUES ($1, jsonb_build_object('number', 'r-' || $1, 'cents', $2::bigint)) RETURNING result`,
			key, cents).Scan(&result)
	})
	return result, err
}

// undo takes the effect of a key away, if there is one, and leaves a tombstone.
func (l *ledger) undo(ctx context.Context, key string) error {
	return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, locked, key); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM charges WHERE key = $1`, key); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO charge_ledger (key) VALUES ($1) ON CONFLICT (key) DO UPDATE SET result = NULL`, key)
		return err
	})
}

// probeTime is for a probe; one that takes longer cannot tell.
const probeTime = 2 * time.Second

// probe says what became of a key, without waiting for those that work on it.
func (l *ledger) probe(ctx context.Context, key string) (outcome string, result json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, key).Scan(&free); err != nil {
			return err
		}
		if !free {
			outcome = "in_progress"
			return nil
		}
		err := tx.QueryRow(ctx, `SELECT result FROM charge_ledger WHERE key = $1`, key).Scan(&result)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		outcome = "absent"
		if result != nil {
			outcome = "done"
		}
		return err
	})
	return outcome, result, err
}

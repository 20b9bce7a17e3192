package schema

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

// Row is the one row of a query. Error: sql.ErrNoRows.
type Row interface{ Scan(into ...any) error }

// Tx is a small transaction of a dialect. Statements are those of this package, with parameters ?1, ?2.
type Tx interface {
	Row(ctx context.Context, query string, args ...any) Row
	// Exec runs a statement, and returns how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
}

// Transact runs do in a transaction of the owners' handle, and again when the database asks for that.
type Transact func(ctx context.Context, do func(context.Context, Tx) error) error

// TakeOver implements [Store]. It locks the partition's row, raises the epoch, and continues the chain.
func (b *Base) TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	done := b.lockTakeover(partition)
	defer done()
	// The owner before may have purged less, or with another database: see ForgetPurged.
	b.ForgetPurged(partition)
	var st core.PartitionState
	var continued func()
	err := b.transact(ctx, func(ctx context.Context, tx Tx) error {
		var err error
		st, err = b.scanPartition(tx.Row(ctx, b.sql.partitions+` WHERE partition = ?1`+b.lock, partition))
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("partition %d: %w", partition, core.ErrNotFound)
		}
		if err != nil {
			return err
		}
		st.Take(c)
		continued, err = b.writeTakeOver(ctx, tx, &st, c.At)
		return err
	})
	if err == nil {
		continued()
	}
	return st, err
}

// Release implements [Store]. It empties the owner in the partition's row, if the epoch is still that one.
func (b *Base) Release(ctx context.Context, partition int, epoch int64) error {
	return b.transact(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE partitions SET owner = '' WHERE partition = ?1 AND epoch = ?2`, partition, epoch)
		return err
	})
}

// Bind implements [Store].
func (b *Base) Bind(ctx context.Context, namespace string) error {
	var id, bound string
	err := b.transact(ctx, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, qBindInstallation, namespace); err != nil {
			return err
		}
		return tx.Row(ctx, qInstallation).Scan(&id, &bound)
	})
	_, err = checkInstallation(id, bound, namespace, err)
	return err
}

// installationBytes is the length of an installation's id that is drawn here.
const installationBytes = 16

// Renew implements [Store].
func (b *Base) Renew(ctx context.Context, was string) (string, error) {
	drawn := make([]byte, installationBytes)
	_, _ = rand.Read(drawn) // which never fails
	id, found := hex.EncodeToString(drawn), ""
	err := b.transact(ctx, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, b.renew, id, was); err != nil {
			return err
		}
		return tx.Row(ctx, qInstallation).Scan(&found, new(string))
	})
	if err != nil {
		return "", fmt.Errorf("another installation: %w", err)
	}
	if found != id {
		return "", fmt.Errorf("another installation: this database is of %s, not of %q", found, was)
	}
	return id, nil
}

// PutPlan implements [Store].
func (b *Base) PutPlan(ctx context.Context, plan core.Plan) error {
	spec, err := encodePlan(&plan)
	if err != nil {
		return err
	}
	return b.transact(ctx, func(ctx context.Context, tx Tx) error {
		stored, err := tx.Exec(ctx, `INSERT INTO plans (name, version, spec) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`, plan.Name, plan.Version, spec)
		if err != nil {
			return err
		}
		// The version exists. It is fine if it means the same, because every node that starts stores its
		// plans.
		if stored == 0 {
			var have []byte
			if err := tx.Row(ctx, `SELECT spec FROM plans WHERE name = ?1 AND version = ?2`, plan.Name, plan.Version).Scan(&have); err != nil {
				return err
			}
			return samePlan(&plan, have, spec)
		}
		for i := range plan.Steps {
			s := &plan.Steps[i]
			if _, err := tx.Exec(ctx, `INSERT INTO plan_steps (plan, version, ordinal, name, agent, undoable, after_steps, complete_by_ms, attempts_max, on_exhausted, kind)
				VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)`, plan.Name, plan.Version, i, s.Name, s.Agent, s.Undoable, after(&plan, i),
				s.CompleteBy.Milliseconds(), s.AttemptsMax, string(s.OnExhausted), kindWord(s.Kind)); err != nil {
				return err
			}
		}
		return nil
	})
}

package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Kinds of an [Incident].
const (
	KindSkipped = "skipped" // a message was left out, by a Verdict or by Resume
	KindStopped = "stopped" // a partition was stopped at a message, or at a gap
	KindGap     = "gap"     // messages were removed before they were read
)

// Incident is what a partition did not handle.
type Incident struct {
	Partition   int
	Kind        string
	First, Last uint64 // sequences of the stream
	Reason      string
	At          time.Time
}

// Partition is how one stands.
type Partition struct {
	Partition int
	Epoch     int64  // one more for each owner
	Owner     string // empty: it is released, or stopped
	Cursor    uint64 // all of the partition up to this sequence of the stream is handled
	Stopped   string // why it is stopped; empty: it is not
}

// Status is how the partitions of a group stand, in order. None: the group has never run.
func Status(ctx context.Context, pool *pgxpool.Pool, group string) ([]Partition, error) {
	rows, err := store{pool: pool, group: group}.rows(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Partition, len(rows))
	for i, r := range rows {
		all[i] = Partition{r.partition, r.epoch, r.owner, r.cursor, r.stopped}
	}
	return all, nil
}

// Incidents are the newest ones of a group, newest first, limit at most.
func Incidents(ctx context.Context, pool *pgxpool.Pool, group string, limit int) ([]Incident, error) {
	s := store{pool: pool, group: group}
	rows, err := pool.Query(ctx, `SELECT partition, kind, first, last, reason, at FROM duly_group_incident WHERE name = $1 ORDER BY at DESC, first DESC LIMIT $2`, group, limit)
	if err != nil {
		return nil, s.wrap("incidents", err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (i Incident, err error) {
		return i, r.Scan(&i.Partition, &i.Kind, &i.First, &i.Last, &i.Reason, &i.At)
	})
	if err != nil {
		return nil, s.wrap("incidents", err)
	}
	return all, nil
}

// Resume lets a stopped partition go on: with what it was stopped at, or with skip after that, which is recorded in the same
// transaction. Error: [ErrNotStopped].
func Resume(ctx context.Context, pool *pgxpool.Pool, group string, partition int, skip bool) error {
	s := store{pool: pool, group: group}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var epoch int64
		var cursor, first, last uint64
		var why string
		err := tx.QueryRow(ctx, `SELECT p.epoch, p.cursor, p.stopped, i.first, i.last FROM duly_group_partition p JOIN duly_group_incident i
			ON i.name = p.name AND i.partition = p.partition AND i.epoch = p.epoch AND i.kind = $3
			WHERE p.name = $1 AND p.partition = $2 AND p.stopped <> '' ORDER BY i.at DESC LIMIT 1 FOR UPDATE OF p`, group, partition, KindStopped).
			Scan(&epoch, &cursor, &why, &first, &last)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("group %s: partition %d: %w", group, partition, ErrNotStopped)
		}
		if err != nil {
			return s.wrap("resume", err)
		}
		if skip {
			cursor = last
			if err := s.incident(ctx, tx, Incident{Partition: partition, Kind: KindSkipped, First: first, Last: last, Reason: why}, epoch); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE duly_group_partition SET stopped = '', cursor = $3, stored = CASE WHEN cursor = $3 THEN stored ELSE 0 END
			WHERE name = $1 AND partition = $2`, group, partition, int64(cursor))
		if err != nil {
			return s.wrap("resume", err)
		}
		return nil
	})
}

// Forget removes all that is known of a group, so that its next [Run] begins as the first one: with another stream, rule or
// number of partitions, and with messages that it has had before. No member may run.
func Forget(ctx context.Context, pool *pgxpool.Pool, group string) error {
	s := store{pool: pool, group: group}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, text := range []string{`DELETE FROM duly_group WHERE name = $1`, `DELETE FROM duly_group_partition WHERE name = $1`,
			`DELETE FROM duly_group_incident WHERE name = $1`} {
			if _, err := tx.Exec(ctx, text, group); err != nil {
				return s.wrap("forget", err)
			}
		}
		return nil
	})
}

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// preload fills the store with old tasks that ended well and are forgotten: what a
// system that has run for long is full of.
func (r *rig) preload(ctx context.Context, n int) error {
	store, err := dialects.Open(ctx, r.database, schema.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Partitions(ctx, r.partitions); err != nil {
		return err
	}
	old := &oldTasks{left: n, next: make([]int64, r.partitions), ended: time.Now().Add(-48 * time.Hour)}
	columns := []string{"partition", "number", "id", "type", "plan_version", "input_hash", "state", "seq", "round", "failure_count", "origin",
		"created_at", "updated_at", "ended_at", "end_number", "commit_id"}
	if _, err := r.sql.CopyFrom(ctx, pgx.Identifier{"tasks"}, columns, old); err != nil {
		return fmt.Errorf("old tasks: %w", err)
	}
	for p, last := range old.next {
		if _, err := r.sql.Exec(ctx, `UPDATE partitions SET next_number = $2, next_end = $2, told = $3, forgotten = $3 WHERE partition = $1`, p, last+1, last); err != nil {
			return fmt.Errorf("old tasks of partition %d: %w", p, err)
		}
	}
	for _, q := range []string{`VACUUM (ANALYZE) tasks`, `CHECKPOINT`} {
		if _, err := r.sql.Exec(ctx, q); err != nil {
			return fmt.Errorf("old tasks: %w", err)
		}
	}
	return nil
}

// oldTasks gives rows for COPY.
type oldTasks struct {
	left  int
	next  []int64 // the last number of each partition
	ended time.Time
	row   []any
}

// Next implements pgx.CopyFromSource.
func (o *oldTasks) Next() bool {
	if o.left == 0 {
		return false
	}
	o.left--
	var id [idBytes]byte
	newID(id[:])
	p := wire.PartitionOf(string(id[:]), len(o.next))
	o.next[p]++
	hash := sha256.Sum256(id[:])
	o.row = append(o.row[:0], p, o.next[p], string(id[:]), drone.Type, 1, hash[:], "processed", 6, 0, 0, 0, o.ended, o.ended, o.ended, o.next[p], 0)
	return true
}

// Values implements pgx.CopyFromSource.
func (o *oldTasks) Values() ([]any, error) { return o.row, nil }

// Err implements pgx.CopyFromSource.
func (o *oldTasks) Err() error { return nil }

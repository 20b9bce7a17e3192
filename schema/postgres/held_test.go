package postgres_test

import (
	"database/sql"
	"testing"

	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// TestHeld: a transaction that sees the tables as they were is seen with its age until it ends.
//
// covers: L14
func TestHeld(t *testing.T) {
	t.Parallel()
	s := fresh(t, schema.Options{})
	held := func() schema.Held {
		h, err := s.(*postgres.Store).Held(t.Context())
		if err != nil || h.Trouble() != nil || h.WALMost == 0 {
			t.Fatalf("%+v, %v, %v", h, err, h.Trouble())
		}
		return h
	}
	tx, err := dbOf(s).BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM partitions`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	first := held().Snapshot
	if second := held().Snapshot; first <= 0 || second <= first {
		t.Errorf("%v, then %v", first, second)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if after := held().Snapshot; after != 0 && after >= first { // the question sees itself
		t.Errorf("%v after its end", after)
	}
}

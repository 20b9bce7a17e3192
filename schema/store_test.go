package schema_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// open opens and migrates a store; it is closed when the test ends.
func open(tb testing.TB, at string, o schema.Options) schema.Store {
	tb.Helper()
	s := opened(tb, at, o)
	if err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// fresh opens a store of a new database with the newest tables.
func fresh(tb testing.TB, dialect string, o schema.Options) schema.Store {
	tb.Helper()
	if dialect == "postgres" {
		return opened(tb, pgtestdb.Migrated(tb), o)
	}
	return open(tb, sqliteURL(tb), o)
}

func opened(tb testing.TB, at string, o schema.Options) schema.Store {
	tb.Helper()
	s, err := dialects.Open(context.Background(), at, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func sqliteURL(tb testing.TB) string {
	tb.Helper()
	return "sqlite:" + filepath.Join(tb.TempDir(), "duly.db")
}

func plainBirth(p int, number int64) core.TaskWrite {
	at := core.Instant(1_893_456_000_000_000)
	return core.TaskWrite{
		Task: &core.Task{
			Partition: p, Number: number, ID: fmt.Sprintf("t%d", number), Type: "order", State: core.StateProcessing, Seq: 1,
			CreatedAt: at, UpdatedAt: at, Bound: at, Deadline: at,
		},
		Birth:   true,
		Records: []core.Record{{Seq: 1, Kind: core.KindSubmitted, At: at, State: core.StateProcessing, Step: -1, Next: 0, NextAttempt: 1, Due: at}},
	}
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-tick.C
	}
}

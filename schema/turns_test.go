package schema_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/sqlite"
)

// TestTurns: who asks much at a time waits for what it has asked before, and no other actor, nor the program itself, waits
// for it; a question whose asker has gone, or that has failed, holds no place.
//
// covers: E26
func TestTurns(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "duly.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	as := func(name string) context.Context {
		return operate.WithActor(t.Context(), operate.Actor{Name: name, Role: operate.RoleViewer})
	}
	ask := func(ctx context.Context, query string) schema.Rows {
		t.Helper()
		rows, err := schema.Ask(ctx, s, query)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	const two = `SELECT 1 UNION SELECT 2`
	if _, err := schema.Ask(as("olga"), s, `no SQL`); err == nil {
		t.Error("no error")
	}
	var hers []schema.Rows
	for range schema.AskingEach {
		hers = append(hers, ask(as("olga"), two))
	}
	gone, leave := context.WithTimeout(as("olga"), 50*time.Millisecond)
	defer leave()
	if _, err := schema.Ask(gone, s, two); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	for _, other := range []context.Context{as("oleg"), operate.ForAll(as("olga"))} {
		if err := ask(other, two).Close(); err != nil {
			t.Error(err)
		}
	}
	waited := make(chan error, 1)
	go func() {
		rows, err := schema.Ask(as("olga"), s, two)
		if err == nil {
			err = rows.Close()
		}
		waited <- err
	}()
	for hers[0].Next() {
	}
	if err := errors.Join(<-waited, hers[0].Close(), hers[1].Close()); err != nil {
		t.Error(err)
	}
	for i := range hers { // all places are there again
		hers[i] = ask(as("olga"), two)
	}
	for _, rows := range hers {
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
}

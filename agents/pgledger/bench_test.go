package pgledger_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/agents/pgledger"
	"duly.dev/duly/internal/pgtestdb"
)

// What the ledger adds to a transaction of one statement. The server does not sync.
func BenchmarkDo(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), pgtestdb.URL(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(b.Context(), effectsSQL); err != nil {
		b.Fatal(err)
	}
	ledger, err := pgledger.New(pool, pgledger.Options{})
	if err == nil {
		err = ledger.Setup(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	effect := func(ctx context.Context, tx pgx.Tx, key string) error {
		_, err := tx.Exec(ctx, `INSERT INTO effects (key, n) VALUES ($1, 1)`, key)
		return err
	}
	key := 0
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			key++
			if err := pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error { return effect(b.Context(), tx, strconv.Itoa(key)) }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ledger", func(b *testing.B) {
		for b.Loop() {
			key++
			if _, err := ledger.Do(b.Context(), strconv.Itoa(key), func(ctx context.Context) ([]byte, error) {
				return []byte(`{"number":1}`), effect(ctx, ledger.Tx(ctx), strconv.Itoa(key))
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

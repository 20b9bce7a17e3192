package kvledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/agents/kvledger"
)

// openLedger is what docs/guide/ledgers.md shows.
func openLedger(ctx context.Context, js jetstream.JetStream) (duly.Ledger, error) {
	kv, err := kvledger.Create(ctx, js, kvledger.Bucket{Name: "payments", Keep: 72 * time.Hour})
	if err != nil {
		return nil, err
	}
	return kvledger.New(ctx, kv, kvledger.Options{AtMostOnce: true})
}

// TestGuide: it opens, twice, and works.
func TestGuide(t *testing.T) {
	t.Parallel()
	js := connect(t, server(t))
	for range 2 {
		ledger, err := openLedger(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("1"), nil })
		if err != nil || string(got) != "1" {
			t.Errorf("%s %v", got, err)
		}
	}
}

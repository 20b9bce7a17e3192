package agents_test

import (
	"context"
	"sync"
	"testing"

	"duly.dev/duly/agents"
	"duly.dev/duly/agents/ledgertest"
	"duly.dev/duly/internal/core"
)

// counted is a service in memory.
type counted struct {
	mu       sync.Mutex
	standing map[string]int
}

func (c *counted) add(key string, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing[key] += n
	return nil
}

func (c *counted) Do(_ context.Context, key string) error   { return c.add(key, 1) }
func (c *counted) Undo(_ context.Context, key string) error { return c.add(key, -1) }

func (c *counted) Standing(key string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.standing[key], nil
}

// The ledger in memory keeps the contract that the durable ones are held to.
//
// covers: S40, D6, inv7
func TestMemoryLedgerKeepsTheContract(t *testing.T) {
	ledger := agents.NewMemoryLedger(func() core.Instant { return 1 }, 0, 0)
	ledgertest.Run(t, ledgertest.Subject{Ledger: ledger, Service: &counted{standing: map[string]int{}}})
}

package kvledger_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"duly.dev/duly/agents/kvledger"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/natstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := work(context.Background(), os.Getenv("NATS_URL"), os.Getenv(workerEnv) == "once"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come.
const patience = time.Minute

// server is a NATS server for one test.
func server(t *testing.T) (url string) {
	t.Helper()
	return natstest.Start(t, natsserver.Options{SyncOff: true}).ClientURL()
}

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// bucket is the one of a test.
func bucket(t *testing.T, js jetstream.JetStream) jetstream.KeyValue {
	t.Helper()
	kv, err := kvledger.Create(t.Context(), js, kvledger.Bucket{Name: "ledger", Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func open(t *testing.T, kv jetstream.KeyValue, o kvledger.Options) *kvledger.Ledger {
	t.Helper()
	ledger, err := kvledger.New(t.Context(), kv, o)
	if err != nil {
		t.Fatal(err)
	}
	return ledger
}

// counted is a service in memory.
type counted struct {
	mu       sync.Mutex
	standing map[string]int
}

func (c *counted) add(key string, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standing == nil {
		c.standing = map[string]int{}
	}
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

package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/pause"
)

// patience bounds every wait of a test; nothing waits that long unless it fails.
const patience = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server of the test's own.
func serve(t *testing.T) (url string) {
	t.Helper()
	return natstest.Start(t, natsserver.Options{SyncOff: true}).ClientURL()
}

// dial connects for the length of a test.
func dial(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // rights are missing in one test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// eventually polls until ok, and fails with what it waited for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !ok() {
		if pause.For(ctx, time.Millisecond) != nil {
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

package natsbus

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test; nothing waits that long unless it fails.
const patience = 60 * time.Second

// quiet is the logger of tests; DULY_TEST_LOG=1 makes it speak.
func quiet() *slog.Logger {
	if os.Getenv("DULY_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// serve starts a server of the test's own.
func serve(t testing.TB, o natsserver.Options) *natsserver.Server {
	t.Helper()
	return natstest.Start(t, o)
}

// dial connects to a server; the connection ends before the server does.
func dial(t testing.TB, url string) *Conn {
	t.Helper()
	return dialWith(t, Options{URL: url})
}

func dialWith(t testing.TB, o Options) *Conn {
	t.Helper()
	o.Name, o.Logger = t.Name(), quiet()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := Dial(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// ready is a connection to a new server with all streams.
func ready(t testing.TB) *Conn {
	t.Helper()
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	setUp(t, c, StreamConfig{Lease: leaseLife})
	return c
}

func setUp(t testing.TB, c *Conn, config StreamConfig) Ready {
	t.Helper()
	r, err := c.Setup(within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// within is a context that ends with the test's patience.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until ok, and fails with what it waited for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

// receive takes one value or fails.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	select {
	case v := <-from:
		return v
	case <-end.C:
		t.Fatalf("waited %v for: %s", patience, what)
		panic("unreachable")
	}
}

// nothing fails when a value is there now.
func nothing[T any](t testing.TB, what string, from <-chan T) {
	t.Helper()
	select {
	case v := <-from:
		t.Fatalf("%s: got %+v, want nothing", what, v)
	default:
	}
}

// publishPack stores a pack of one submission and returns its position.
func publishPack(t testing.TB, c *Conn, partition int, subs ...core.Submission) uint64 {
	t.Helper()
	type outcome struct {
		seq uint64
		err error
	}
	got := make(chan outcome, 1)
	c.PublishPack(partition, subs, func(seq uint64, err error) { got <- outcome{seq, err} })
	o := receive(t, "confirmation of a pack", got)
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.seq
}

func isBusy(err error) bool { return errors.Is(err, errBusy) }

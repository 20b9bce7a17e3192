package mock_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev"
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/order"
	"duly.dev/duly/examples/payout"
	"duly.dev/duly/examples/provisioning"
	"duly.dev/duly/examples/travel"
)

// examples are those that run on a server, how many tasks of each a test runs, and whether some of them are undone: a
// night of payouts goes on although some payees fail.
var examples = []struct {
	name   string
	tasks  int
	undone bool
	build  func(mock.Settings) mock.Example
}{
	{"order", 60, true, func(s mock.Settings) mock.Example { return order.New(s) }},
	{"travel", 60, true, func(s mock.Settings) mock.Example { return travel.New(s) }},
	{"provisioning", 15, true, func(s mock.Settings) mock.Example { return provisioning.New(s) }},
	{"payout", 15, false, func(s mock.Settings) mock.Example { return payout.New(s) }},
}

// Every example runs on a server with services that refuse, fail, hang and lose answers: each task ends as a whole, and
// the books of the services agree with what the server says.
func TestExamplesInAStorm(t *testing.T) {
	for _, store := range []string{dev.StoreSQLite, dev.StorePostgres} {
		for _, x := range examples {
			t.Run(store+"/"+x.name, func(t *testing.T) {
				nc := serve(t, store)
				storm, err := mock.FaultsNamed("storm")
				if err != nil {
					t.Fatal(err)
				}
				settings := mock.Quick(storm, 1)
				settings.CallTime = 300 * time.Millisecond
				report, err := mock.Play(t.Context(), nc, "duly", x.build(settings), x.tasks, 90*time.Second, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				if !report.Clean() || report.Accepted != x.tasks || report.Processed == 0 || x.undone && report.Undone == 0 {
					t.Errorf("%+v", report)
				}
			})
		}
	}
}

// serve starts a server with all roles, and gives a connection to it.
func serve(t *testing.T, store string) *nats.Conn {
	t.Helper()
	cfg := dev.Config("one", 4)
	cfg.ScanInterval = 50 * time.Millisecond
	sys, err := dev.Start(t.Context(), dev.Options{Dir: t.TempDir(), Store: store, Config: cfg, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sys.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := sys.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	nc, err := nats.Connect(sys.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/wire"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// until polls until ok; it fails the test when that takes too long.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// lineAlerts keeps the lines of alerts, as a handler of a log.
type lineAlerts struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (l *lineAlerts) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lineAlerts) Enabled(context.Context, slog.Level) bool { return true }
func (l *lineAlerts) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, text)
	return nil
}

// with counts the lines that hold a text.
func (l *lineAlerts) with(text *regexp.Regexp) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if text.MatchString(line) {
			n++
		}
	}
	return n
}

// running runs a node until the test ends.
func running(t *testing.T, cfg config.Config) (*Node, *lineAlerts) {
	t.Helper()
	lines := &lineAlerts{Handler: slog.DiscardHandler}
	n, err := Open(t.Context(), cfg, slog.New(lines))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, n.Close()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", cfg.NodeName, strings.Join(lines.lines, "\n"))
		}
	})
	return n, lines
}

// TestWrongClocksUndoNothing: two of three nodes have clocks that are 90 s wrong, ahead and behind, and tasks have 20 s:
// every one of them is processed, whichever node takes it in and whichever runs it. The wrong ones are told, and are not
// ready.
//
// covers: B9
func TestWrongClocksUndoNothing(t *testing.T) {
	t.Parallel()
	const tasks, partitions = 300, 24
	server := startNATS(t)
	db := pgtestdb.Installation(t)
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	nodes, lines := map[string]*Node{}, map[string]*lineAlerts{}
	for name, wrong := range map[string]time.Duration{"ahead": 90 * time.Second, "behind": -90 * time.Second, "right": 0} {
		cfg := good()
		cfg.NodeName, cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = name, server.ClientURL(), db, wire.DefaultNamespace
		cfg.Partitions, cfg.InFlight, cfg.AgentWindow, cfg.Lease, cfg.ScanInterval = partitions, 1000, 1000, 2*time.Second, 100*time.Millisecond
		cfg.ReplyTo = []string{"_INBOX."}
		if wrong != 0 {
			cfg.Now = func() time.Time { return time.Now().Add(wrong) }
		}
		nodes[name], lines[name] = running(t, cfg)
	}
	until(t, "each node owns partitions, and together all", func() bool {
		all := 0
		for _, n := range nodes {
			n.mu.Lock()
			owned := 0
			if n.own != nil {
				owned = n.own.Owned()
			}
			n.mu.Unlock()
			if owned == 0 {
				return false
			}
			all += owned
		}
		return all == partitions
	})
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	echo := func(m *nats.Msg) { _ = m.Respond([]byte(`1`)) } // a lost answer is the step's complete-by
	for _, subject := range []string{"duly.do.echo", "duly.undo.echo"} {
		if _, err := nc.QueueSubscribe(subject, "q", echo); err != nil {
			t.Fatal(err)
		}
	}
	client, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	plan := duly.NewPlan("quick", 1, duly.NewCheck[int, int]("step", "echo", duly.CompleteBy(10*time.Second))).With(duly.TaskCompleteBy(20 * time.Second))
	if err := errors.Join(nc.Flush(), plan.Apply(t.Context(), client)); err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		if _, err := plan.Submit(t.Context(), client, fmt.Sprint("t", i), i); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "every task has ended", func() bool {
		ended, err := nodes["right"].EndedTasks(t.Context())
		return err == nil && ended == tasks
	})
	counts, err := nodes["right"].store.Counts(t.Context())
	if err != nil || len(counts) != 1 || string(counts[0].State) != "processed" || counts[0].Tasks != tasks {
		t.Errorf("%+v %v, want %d processed", counts, err, tasks)
	}
	differ := regexp.MustCompile("ALERT: the clocks of this machine, NATS and the database differ")
	for name, says := range map[string]string{"ahead": "ahead of ", "behind": "behind "} {
		until(t, name+" is told", func() bool { return lines[name].with(differ) == 1 })
		for _, whose := range []string{"NATS's", "the database's"} {
			if lines[name].with(regexp.MustCompile(`clock is 1m(29|30)[.0-9]*s `+says+whose)) == 0 {
				t.Errorf("%s does not say that it is 1m30s %s%s", name, says, whose)
			}
		}
		until(t, name+" is not ready because of its clock alone", func() bool {
			got := nodes[name].ground.Ready()
			return len(got) == 1 && got[0].Name == condClockFar && got[0].Consequence == ground.NotReady
		})
	}
	until(t, "the node whose clock is right has no trouble", func() bool { return len(nodes["right"].ground.Troubles()) == 0 })
}

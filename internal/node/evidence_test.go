package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/scheduler"
)

// An owner hears what others record of its partitions, also of one that it has just taken over, and of no others: a fleet
// would make NATS send each record to each node.
//
// covers: inv11
func TestEvidenceOfOwnPartitions(t *testing.T) {
	t.Parallel()
	cfg := good()
	cfg.Partitions = 4
	cfg.Links = config.Links{NATSURL: startNATS(t).ClientURL(), DatabaseURL: "sqlite:" + t.TempDir() + "/duly.db"}
	if err := Migrate(t.Context(), cfg.Links.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if _, err := n.conn.Setup(t.Context(), natsbus.StreamConfig{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	w := newOwnerWires(n, make(replies, 4))
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan core.Evidence, 64), make(chan error, 1)
	go func() { ended <- w.Evidence(ctx, func(e core.Evidence) { heard <- e }) }()
	record := func(p int, epoch int64, former bool) {
		n.conn.Record([]core.Evidence{{Partition: p, Epoch: epoch, Commit: 1, At: 1, Former: former}})
	}
	wait := func(what string, p int, epoch int64) {
		t.Helper()
		late := time.After(patience)
		for {
			select {
			case e := <-heard:
				if e.Partition == 0 {
					t.Fatalf("%s: heard of partition 0, which is not listened to", what)
				}
				if e.Partition == p && e.Epoch == epoch {
					return
				}
			case <-late:
				t.Fatalf("%s: not heard", what)
			}
		}
	}
	in := scheduler.New(scheduler.RunConfig{Partitions: 1, Rand: func() float64 { return 0 }}, nil, nil, nil, nil, slog.New(slog.DiscardHandler)).Committers()[0].Inbox()
	record(0, 9, false)
	record(2, 1, false)
	stop2, err := w.Listen(2, in)
	if err != nil {
		t.Fatal(err)
	}
	defer stop2()
	wait("what was recorded before it was taken over", 2, 1)
	record(2, 2, true)
	wait("a former owner", 2, 2)
	stop3, err := w.Listen(3, in)
	if err != nil {
		t.Fatal(err)
	}
	record(0, 10, false)
	record(3, 5, false)
	wait("another partition", 3, 5)
	record(2, 3, false)
	wait("the first one, by the second watch", 2, 3)
	stop3()
	record(2, 4, false)
	wait("after one is let go", 2, 4)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

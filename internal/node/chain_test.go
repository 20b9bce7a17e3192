package node

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/wire"
)

// keyFile is a new key for heads, in a file.
func keyFile(t *testing.T) (path string, public ed25519.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "chain.key")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, public
}

// TestChainOfNodes: two nodes keep the chains of a database, one hands its partitions to the other, and a check with the
// signed heads on NATS fits; a row that is changed behind them is named.
func TestChainOfNodes(t *testing.T) {
	t.Parallel()
	server := startNATS(t)
	at := pgtestdb.Installation(t)
	if err := Migrate(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	key, public := keyFile(t)
	cfg := good()
	cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace, cfg.Chain, cfg.ChainKey = server.ClientURL(), at, wire.DefaultNamespace, true, key
	cfg.Partitions, cfg.Lease, cfg.ScanInterval, cfg.ReplyTo = 4, 2*time.Second, 100*time.Millisecond, []string{"_INBOX."}
	nodes, stops := map[string]*Node{}, map[string]func(){}
	for _, name := range []string{"n1", "n2"} {
		cfg.NodeName = name
		n, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- errors.Join(n.Run(ctx), n.Close()) }()
		stopped := false
		nodes[name], stops[name] = n, func() {
			if stopped {
				return
			}
			stopped = true
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(stops[name])
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	a, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	put := duly.NewStep[int, int]("put", "vault")
	plan := duly.NewPlan[int]("deposit", 1, put)
	if err := put.Serve(a, func(_ context.Context, c duly.Call[int]) (int, error) { return c.Input, nil },
		func(context.Context, duly.Undo[int, int]) error { return nil }); err != nil {
		t.Fatal(err)
	}
	running, stopAgent := context.WithCancel(context.Background())
	agentEnded := make(chan struct{})
	go func() {
		defer close(agentEnded)
		_ = a.Run(running)
	}()
	t.Cleanup(func() { stopAgent(); <-agentEnded })
	c, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the plan is taken", func() bool { return plan.Apply(t.Context(), c) == nil })
	tasks := 0
	run := func(more int) {
		t.Helper()
		for range more {
			id := fmt.Sprintf("d-%d", tasks)
			until(t, "a task is taken", func() bool { _, err := plan.Submit(t.Context(), c, id, 1); return err == nil })
			tasks++
		}
		until(t, "all have ended", func() bool {
			counts, _ := nodes["n2"].store.Counts(t.Context())
			return len(counts) == 1 && counts[0].State == core.StateProcessed && counts[0].Tasks == int64(tasks)
		})
	}
	run(20)
	stops["n1"]()
	run(20)
	var report *chain.Report
	check := func() *chain.Report {
		t.Helper()
		heads, err := Heads(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		proof, err := OpenProof(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		o := VerifyOptions(&cfg)
		o.Heads, o.Key = heads, public
		report, err := chain.Verify(t.Context(), proof, o)
		if err = errors.Join(err, proof.Close()); err != nil {
			t.Fatal(err)
		}
		return report
	}
	until(t, "the heads of all chains are as high as these", func() bool {
		report = check()
		if !report.Fits() {
			t.Fatalf("found: %+v", report.Findings)
		}
		for _, p := range report.Partitions {
			if p.Heads == 0 || p.Last < 2 {
				return false
			}
		}
		return true
	})
	beside := cfg
	beside.Partitions = 1 // whoever verifies need not know how many there are
	if heads, err := Heads(t.Context(), beside); err != nil || len(heads) != cfg.Partitions {
		t.Errorf("%d heads of %d partitions, %v", len(heads), cfg.Partitions, err)
	}
	if report.Unheld+report.Unsigned != 0 || !report.Proven() {
		t.Errorf("report: %s", report.Sentence())
	}
	partitions, err := nodes["n2"].ports().Partitions.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range partitions {
		if p.Chain.Height != report.Partitions[i].Last || p.Chain.Head == 0 || !p.Chain.Signed || p.Chain.HeadAt.IsZero() {
			t.Errorf("partition %d shows %+v, and its chain is %+v", i, p.Chain, report.Partitions[i])
		}
	}
	db, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`UPDATE journal SET result = convert_to('2', 'UTF8') WHERE (partition, number) = (SELECT partition, number FROM tasks WHERE id = 'd-3') AND kind = 'done'`); err != nil {
		t.Fatal(err)
	}
	report = check()
	if len(report.Findings) != 1 || report.Findings[0].What != chain.Changed || report.Findings[0].Task != "d-3" {
		t.Errorf("a changed result: %+v", report.Findings)
	}
}

// TestHeadSigner: a head is recorded when it has changed, and again when it was not taken.
func TestHeadSigner(t *testing.T) {
	heads := []chain.Head{{Partition: 1, Height: 1, Hash: chain.Hash{1}}, {Partition: 2, Height: 1, Hash: chain.Hash{2}}}
	var recorded []chain.Head
	var fails error
	s := headSigner{
		installation: "i", heads: func() []chain.Head { return append([]chain.Head(nil), heads...) }, now: time.Now, log: slog.New(slog.DiscardHandler),
		record:   func(h *chain.Head, done func(error)) { recorded = append(recorded, *h); done(fails) },
		recorded: map[int]chain.Hash{},
	}
	step := func(what string, want int) {
		t.Helper()
		recorded = nil
		s.step()
		if len(recorded) != want {
			t.Errorf("%s: %d heads recorded, want %d", what, len(recorded), want)
		}
	}
	step("first", 2)
	if h := recorded[0]; h.Installation != "i" || h.At == 0 || h.Signed() {
		t.Errorf("without a key: %+v", h)
	}
	step("unchanged", 0)
	heads[1].Hash, fails = chain.Hash{3}, errors.New("away")
	step("one changed", 1)
	fails = nil
	step("it was not taken", 1)
	step("it was", 0)
}

func TestChainKeyRefused(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.key")
	if err := os.WriteFile(bad, []byte("secret words"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{bad, bad + ".none"} {
		cfg := good()
		cfg.Chain, cfg.ChainKey = true, path
		if _, err := chainKeyOf(&cfg); err == nil || !strings.HasPrefix(err.Error(), "chain-key:") || strings.Contains(err.Error(), "secret") {
			t.Errorf("key %s: %v", path, err)
		}
	}
}

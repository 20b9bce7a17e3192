package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// headsEvery is how often the heads of chains that have grown are signed and recorded.
const headsEvery = time.Second

// chainKeyOf is the key that heads are signed with; nil: none is configured.
func chainKeyOf(cfg *config.Config) (ed25519.PrivateKey, error) {
	if cfg.ChainKey == "" {
		return nil, nil
	}
	text, err := os.ReadFile(cfg.ChainKey)
	if err != nil {
		return nil, fmt.Errorf("chain-key: %w", err)
	}
	key, err := chain.ReadKey(text)
	if err != nil {
		return nil, fmt.Errorf("chain-key: file %s: %w", cfg.ChainKey, err)
	}
	return key, nil
}

// headSigner signs the heads of the chains that a node continues, and records them outside the database.
type headSigner struct {
	installation string
	key          ed25519.PrivateKey // nil: heads are not signed
	heads        func() []chain.Head
	record       func(*chain.Head, func(error))
	now          func() time.Time
	log          *slog.Logger

	mu       sync.Mutex
	recorded map[int]chain.Hash // by partition
}

// run records until ctx ends.
func (s *headSigner) run(ctx context.Context) {
	tick := time.NewTicker(headsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.step()
		}
	}
}

// step records the heads that have changed. One that is not taken is recorded again.
func (s *headSigner) step() {
	for _, h := range s.heads() {
		s.mu.Lock()
		same := s.recorded[h.Partition] == h.Hash
		s.recorded[h.Partition] = h.Hash
		s.mu.Unlock()
		if same {
			continue
		}
		h.Installation, h.At = s.installation, core.InstantOf(s.now())
		if s.key != nil {
			h.Sign(s.key)
		}
		s.record(&h, func(err error) {
			if err == nil {
				return
			}
			s.log.Debug("the head of a chain is not recorded", "partition", h.Partition, "height", h.Height, "error", err)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.recorded[h.Partition] == h.Hash {
				delete(s.recorded, h.Partition)
			}
		})
	}
}

// signHeads does so for this node, where chains are kept.
func (n *Node) signHeads(ctx context.Context, key ed25519.PrivateKey) {
	if !n.cfg.Chain || !n.cfg.Has(config.RoleScheduler) {
		return
	}
	s := headSigner{
		installation: n.installation, key: key, heads: n.store.ChainHeads, record: n.conn.RecordHead, now: time.Now, log: n.log,
		recorded: map[int]chain.Hash{},
	}
	s.run(ctx)
}

// chains are how far the chains are, and their newest heads outside the database.
func (n *Node) chains(ctx context.Context) (map[int]operate.ChainEnd, error) {
	heights, err := n.store.ChainEnds(ctx)
	if err != nil || len(heights) == 0 {
		return nil, err
	}
	heads, err := n.conn.Heads(ctx, n.cfg.Partitions)
	if err != nil {
		return nil, err
	}
	ends := make(map[int]operate.ChainEnd, len(heights))
	for p, height := range heights {
		ends[p] = operate.ChainEnd{Height: height}
	}
	for i := range heads {
		if h := &heads[i]; h.Installation == n.installation {
			end := ends[h.Partition]
			end.Head, end.HeadAt, end.Signed = h.Height, h.At.Time().UTC(), h.Signed()
			ends[h.Partition] = end
		}
	}
	return ends, nil
}

// Proof is the journal of a database with the heads that were recorded on NATS, for a check.
type Proof struct {
	chain.Source
	store schema.Store
}

// OpenProof opens the database of a node's settings to check its journal. It changes nothing.
func OpenProof(ctx context.Context, cfg config.Config) (*Proof, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	store, err := dialects.Open(ctx, cfg.DatabaseURL, schema.Options{MaxConns: 2})
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	err = store.CheckVersion(ctx)
	var source chain.Source
	if err == nil {
		source, err = store.Chain(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), store.Close())
	}
	return &Proof{Source: source, store: store}, nil
}

// Close closes the database.
func (p *Proof) Close() error { return p.store.Close() }

// Heads are the newest heads of all chains, as nodes recorded them on NATS.
func Heads(ctx context.Context, cfg config.Config) ([]chain.Head, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg, err := cfg.Resolve()
	if err != nil {
		return nil, err
	}
	conn, err := natsbus.DialToAsk(ctx, cfg.NATS("duly-verify", cfg.Namespace, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	partitions, err := conn.Partitions(ctx) // those of the settings need not be the nodes'
	if err != nil {
		return nil, err
	}
	return conn.Heads(ctx, partitions)
}

// VerifyOptions are those of a check with a node's settings.
func VerifyOptions(cfg *config.Config) chain.Options {
	return chain.Options{Partition: -1, RetainDetail: cfg.RetainDetail, RetainRow: cfg.RetainRow}
}

// PublicKey reads a key that heads have to be signed by.
func PublicKey(path string) (ed25519.PublicKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := chain.ReadPublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	return key, nil
}

var _ io.Closer = (*Proof)(nil)

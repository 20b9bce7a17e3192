package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"duly.dev/duly/internal/books"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// CompareBooks compares the journal with the books of all agents that keep some, over the settings of a node, for effects
// and tasks since a time. It changes nothing. Error: settings that cannot work, or database or NATS that cannot be reached.
func CompareBooks(ctx context.Context, cfg config.Config, since time.Time) (report *books.Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg, err = cfg.Resolve(); err != nil {
		return nil, err
	}
	store, err := dialects.Open(ctx, cfg.DatabaseURL, schema.Options{MaxConns: 2})
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.CheckVersion(ctx); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	conn, err := natsbus.DialToAsk(ctx, natsbus.Options{
		URL: cfg.NATSURL, Name: "duly-books", Context: cfg.NATSContext, CredentialsFile: cfg.NATSCreds, CAFile: cfg.NATSCA, CertFile: cfg.NATSCert, KeyFile: cfg.NATSKey, InboxPrefix: cfg.NATSInbox,
		Logger: slog.New(slog.DiscardHandler), Namespace: cfg.Namespace,
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return books.New(store, conn, cfg.Partitions, wire.PartitionOf, time.Now).Compare(ctx, since)
}

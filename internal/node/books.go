package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"duly.dev/duly/internal/books"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
	"duly.dev/duly/supervisor"
)

// Names of the conditions of the books.
const (
	condBooks  = "books"        // comparisons come to their end
	condGhosts = "books-ghosts" // journal and services agree
)

// The defaults of the settings of the books, where they are 0.
const (
	booksWindow = 24 * time.Hour
	booksRate   = 10
)

// booksConditions are what an operator is told of the books.
func (n *Node) booksConditions() []ground.Condition {
	return []ground.Condition{{
		Name: condBooks,
	}, {
		Name: condGhosts, Shared: true, Grace: ground.AtOnce, Every: watchEvery, Each: n.probeGhosts,
	}}
}

// probeGhosts are the kinds of ghost that the newest comparison found.
func (n *Node) probeGhosts(context.Context) []ground.Found {
	r, ok := n.lastBooks()
	if !ok {
		return nil
	}
	var all []ground.Found
	for _, kind := range operate.GhostKinds {
		if found := r.Kinds[kind]; found > 0 {
			all = append(all, ground.Found{Key: string(kind), Err: errors.New(say.Of("alert.kind", "n", found, "kind", kind, "text", r.Sentence()))})
		}
	}
	return all
}

// lastBooks is the newest result where this node's supervisor leads; false: it does not, or there is none.
func (n *Node) lastBooks() (operate.BooksResult, bool) {
	r := n.reconciler.Load()
	if r == nil || !n.leads() {
		return operate.BooksResult{}, false
	}
	return r.Last()
}

// bookkeeping is how operators see the books and repair them.
func (n *Node) bookkeeping(actions operate.Actions) operate.Books {
	return &operate.Bookkeeping{Store: n.store, Settings: n.store, Desk: n.desk(), Actions: actions, Now: n.clock.time}
}

// runBooks compares journal and services while the supervisor of this node leads, and returns what ends that and waits for
// its end.
func (n *Node) runBooks(ctx context.Context, sup *supervisor.Runner) (end func(), err error) {
	compared := books.New(n.store, n.conn, n.cfg.Partitions, wire.PartitionOf, n.clock.time)
	r, err := books.NewReconciler(books.Config{
		Interval: n.cfg.BooksInterval, Window: cmp.Or(n.cfg.BooksWindow, booksWindow), Pages: cmp.Or(n.cfg.BooksRate, booksRate), PagesMax: n.cfg.BooksPages,
		Look: n.booksLook(), Now: n.clock.time, Overloaded: n.overloaded, Report: func(err error) { n.report(condBooks, err) },
	}, compared, n.store, supervises{sup})
	if err != nil {
		return nil, err
	}
	n.reconciler.Store(r)
	stop := begin(ctx, r.Run)
	return func() {
		stop()
		n.reconciler.Store(nil)
	}, nil
}

// booksLook is how often the leader looks whether someone wants a comparison: with its scans, and no more than every five
// seconds.
func (n *Node) booksLook() time.Duration { return min(5*time.Second, 5*n.cfg.ScanInterval) }

// compareMost is how long the reading of what was compared before may take.
const compareMost = 10 * time.Second

// comparing are the options of a comparison beside the reconciler: what operators accepted counts the same.
func comparing(ctx context.Context, store operate.BooksStore) (o books.Options, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareMost)
	defer cancel()
	if o.Accepted, err = books.Accepted(ctx, store); err != nil {
		return o, err
	}
	last, err := store.LastBooks(ctx)
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		return o, err
	}
	for _, a := range last.Agents {
		if !a.None {
			o.Kept = append(o.Kept, a.Agent)
		}
	}
	return o, nil
}

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
	conn, err := natsbus.DialToAsk(ctx, cfg.NATS("duly-books", cfg.Namespace, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	options, err := comparing(ctx, store)
	if err != nil {
		return nil, err
	}
	rows, err := store.Cursors(ctx) // a row for each partition: those of the settings need not be the nodes'
	if err != nil {
		return nil, err
	}
	return books.New(store, conn, max(1, len(rows)), wire.PartitionOf, time.Now).Compare(ctx, since, options)
}

// Journal is the state store as a comparison with the books of services reads it.
func (n *Node) Journal() books.Store { return n.store }

// Partitions is how many partitions there are.
func (n *Node) Partitions() int { return n.cfg.Partitions }

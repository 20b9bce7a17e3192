package dev

import (
	"context"
	"fmt"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/books"
	"duly.dev/duly/internal/wire"
)

// CompareBooks compares the journal in a state store with the books of all services, which are in this process: by agent.
// Nothing may run meanwhile. Error: the state store could not be read, or an agent whose steps leave effects has no books.
func CompareBooks(ctx context.Context, store books.Store, partitions int, kept map[string]duly.Books) (*books.Report, error) {
	report, err := books.New(store, shelf(kept), partitions, wire.PartitionOf, nil).Compare(ctx, time.Unix(0, 0), books.Options{})
	if err != nil {
		return nil, err
	}
	for _, a := range report.Agents {
		if a.None || a.Error != "" {
			return nil, fmt.Errorf("books of agent %s: none are kept, or %q", a.Agent, a.Error)
		}
	}
	return report, nil
}

// CompareBooks is the function of that name on this system's state store.
func (s *System) CompareBooks(ctx context.Context, kept map[string]duly.Books) (*books.Report, error) {
	return CompareBooks(ctx, s.Node.Journal(), s.Node.Partitions(), kept)
}

// shelf is books.Asker on books in this process.
type shelf map[string]duly.Books

// AskBooks implements books.Asker.
func (s shelf) AskBooks(ctx context.Context, agent string, q wire.BooksQuestion) (answer wire.BooksAnswer, err error) {
	kept := s[agent]
	if kept == nil {
		return answer, fmt.Errorf("agent %s: %w", agent, wire.ErrNoBooks)
	}
	var effects []duly.Effect
	if len(q.Keys) > 0 {
		effects, err = kept.Find(ctx, q.Keys)
	} else {
		effects, answer.Next, err = kept.Since(ctx, q.Since, q.After, q.Limit)
	}
	for _, e := range effects {
		answer.Effects = append(answer.Effects, wire.BooksEffect(e))
	}
	return answer, err
}

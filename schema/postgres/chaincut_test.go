package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgfault"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
	"duly.dev/duly/schema/storetest"
)

// Chains fit where the database fails as CockroachDB may, in its words and in PostgreSQL's:
// commits are sent again whose outcome is not known, and takeovers happen twice.
func TestChainsThroughFaults(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]pgfault.Faults{
		"postgres": {Seed: 11, Rate: 0.08}, "cockroach": {Seed: 12, Rate: 0.08, Cockroach: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := proxy(t, f)
			storetest.RunChains(t, func(tb testing.TB) (schema.Store, schema.Store, *sql.DB) {
				direct := pgtestdb.Migrated(tb)
				plain := opened(tb, direct, schema.Options{})
				s, err := retried(tb.Context(), func() (schema.Store, error) {
					return postgres.Open(context.Background(), through(tb, p, direct), schema.Options{Chain: true})
				})
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(func() {
					if err := s.Close(); err != nil {
						tb.Error(err)
					}
				})
				return again{patient{s, dbOf(plain)}}, plain, dbOf(plain)
			})
		})
	}
}

// again is patient, and takes over and forgets again whatever has happened: the tests of chains
// do not count how often.
type again struct{ patient }

func (a again) TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	return retried(ctx, func() (core.PartitionState, error) { return a.Store.TakeOver(ctx, partition, c) })
}

func (a again) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	return retried(ctx, func() (int, error) { return a.Store.Purge(ctx, partition, epoch, detail, row, limit) })
}

func (a again) Links(b *core.Batch) (schema.Links, error) { return a.Store.(storetest.Linker).Links(b) }

func (a again) Linked(l schema.Links, fenced []int) { a.Store.(storetest.Linker).Linked(l, fenced) }

// A chain goes on and does not fork wherever its owner dies: at each request of a takeover and
// of a commit the connection is cut and the process with it, and another takes the partition
// over, with a commit that came through or not.
func TestChainOwnerDiesAnywhere(t *testing.T) {
	t.Parallel()
	direct := pgtestdb.Migrated(t)
	calm := opened(t, direct, schema.Options{Chain: true})
	if err := calm.Partitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	number, commit := int64(0), int64(0)
	write := func(ctx context.Context, s schema.Store) error {
		commit++
		st, err := s.TakeOver(ctx, 0, core.Claim{Owner: fmt.Sprint("owner", commit), Commit: commit, At: 1_893_456_000_000_000})
		if err != nil {
			return err
		}
		p := core.PartitionWrite{Epoch: st.Epoch, After: st.LastCommit}
		for range 2 { // group commits of three tasks
			commit++
			b := &core.Batch{ID: commit, Node: st.Owner}
			for range 3 {
				number++
				b.Writes = append(b.Writes, chainBirth(number))
			}
			p.NextNumber, p.NextEnd = number+1, 1
			b.Partitions = []core.PartitionWrite{p}
			if _, err := s.Commit(ctx, b); err != nil {
				return err
			}
			p.After = commit
		}
		return nil
	}
	cuts, began := 0, time.Now()
	for n := 1; ; n++ {
		p, err := pgfault.Start(direct, pgfault.Faults{CutAt: n})
		if err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(t.Context(), p.URL(), schema.Options{MaxConns: 1, Chain: true})
		if err == nil {
			ctx, die := context.WithCancel(t.Context())
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() { // the process ends when its connection is cut: it does not send again
				defer close(done)
				for p.Counts()[pgfault.LostBefore] == 0 {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
				die()
			}()
			_ = write(ctx, s) // wherever it ended
			close(stop)
			<-done
			die()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		cut := p.Counts()[pgfault.LostBefore] > 0
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := write(t.Context(), calm); err != nil { // the successor
			t.Fatal(err)
		}
		source, err := calm.Chain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heads := calm.ChainHeads()
		heads[0].Installation = source.Installation()
		report, err := chain.Verify(t.Context(), source, chain.Options{Partition: -1, Heads: heads})
		if err != nil || !report.Proven() || report.Partitions[0].Began != 1 {
			t.Fatalf("cut at request %d: %+v, %v", n, report, err)
		}
		if !cut {
			break
		}
		cuts++
	}
	if cuts < 8 {
		t.Errorf("%d cuts: a takeover and two commits have more requests", cuts)
	}
	t.Logf("%d cuts in %v", cuts, time.Since(began))
}

func chainBirth(number int64) core.TaskWrite {
	plan := fivePlan()
	var out core.Outcome
	t := &core.Task{Number: number, ID: fmt.Sprint("t", number), Type: "order", Input: []byte(`{}`), InputHash: make([]byte, 32), CreatedAt: 1_893_456_000_000_000}
	core.Birth(&plan, t, &core.Event{At: t.CreatedAt, Actor: "n"}, &out)
	return core.TaskWrite{Task: t, Birth: true, Records: append([]core.Record(nil), out.Records...)}
}

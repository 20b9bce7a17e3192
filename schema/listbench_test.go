package schema_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
)

// BenchmarkListGrown is what operators ask of a SQLite file with many tasks: a tenth have failed, and as many are parked
// and in hand as counts go to. Each is p50 and p95 of its reads.
func BenchmarkListGrown(b *testing.B) {
	const tasks, partitions = 300_000, 16
	s := open(b, sqliteURL(b), schema.Options{})
	if err := s.Partitions(b.Context(), partitions); err != nil {
		b.Fatal(err)
	}
	const fill = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
		INSERT INTO tasks (partition, number, id, type, plan_version, input_hash, state, seq, round, failure_count, origin, deadline, created_at, updated_at, ended_at, end_number, commit_id,
			failed_step, fingerprint, waits_for, complete_by)
		SELECT i % ?2, 1 + i / ?2, lower(hex(randomblob(16))), 'order', 1, randomblob(32), k, 6, 0, 0, 0, 1, 1000000 * ?3 + 1000 * i, 1,
			CASE WHEN k IN ('processed', 'undone', 'error') THEN 1 END, CASE WHEN k IN ('processed', 'undone', 'error') THEN 1 + i / ?2 END, 1,
			CASE WHEN k IN ('undone', 'error') THEN 2 END, CASE WHEN k IN ('undone', 'error') THEN '00000000000000' || (i / 16 % 50 + 10) END,
			CASE WHEN k = 'pending' THEN 'agent' END, CASE WHEN k IN ('pending', 'processing') THEN 1 END
		FROM (SELECT i, CASE WHEN i / 16 % 20 = 0 THEN 'undone' WHEN i / 16 % 20 = 1 THEN 'error' WHEN i / 16 % 20 = 2 THEN 'pending' WHEN i / 16 % 20 = 3 THEN 'processing' ELSE 'processed' END AS k FROM n)`
	const born = 1_700_000_000
	if _, err := schema.WriterDB(s).ExecContext(b.Context(), fill, tasks, partitions, born); err != nil {
		b.Fatal(err)
	}
	if _, err := schema.WriterDB(s).ExecContext(b.Context(), `INSERT INTO labels (partition, number, key, value) SELECT partition, number, 'tenant', 'acme' FROM tasks WHERE number % 2 = 0`); err != nil {
		b.Fatal(err)
	}
	from := core.InstantOf(time.Unix(born+150, 0))
	list := func(f core.Filter) func(context.Context) error {
		f.Limit = 50
		return func(ctx context.Context) error { _, err := s.List(ctx, f); return err }
	}
	for name, ask := range map[string]func(context.Context) error{
		"created":      list(core.Filter{CreatedFrom: from, CreatedTo: from.Add(time.Second)}),
		"type of none": list(core.Filter{Type: "refund"}),
		"in error":     list(core.Filter{State: core.StateError}),
		"label, rare":  list(core.Filter{Label: "tenant=acme", Type: "refund"}),
		"label":        list(core.Filter{Label: "tenant=acme"}),
		"counts":       func(ctx context.Context) error { _, err := s.CountsUpTo(ctx, operate.CountExactMax); return err },
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				if err := ask(b.Context()); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[0].Microseconds())/1000, "min-ms")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
}

// BenchmarkPlans reads 1,000 plans of five steps, as a node does when it hears of a new one.
func BenchmarkPlans(b *testing.B) {
	s := open(b, sqliteURL(b), schema.Options{})
	p := core.Plan{Name: "order", Steps: []core.Step{{Name: "a", Agent: "pay"}, {Name: "b", Agent: "pay"}, {Name: "c", Agent: "pay"}, {Name: "d", Agent: "pay"}, {Name: "e", Agent: "pay"}}}
	for p.Version = 1; p.Version <= 1000; p.Version++ {
		if err := s.PutPlan(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if plans, err := s.Plans(b.Context()); err != nil || len(plans) != 1000 {
			b.Fatal(len(plans), err)
		}
	}
}

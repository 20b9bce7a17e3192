package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BenchmarkLimit is what a limit costs that keeps nothing back: tasks a second over two nodes, from the first submission to the
// last ending, without a limit and with one of 10,000 at a time, in turns; and the claims a second of the latter, each of which is
// a transaction of three statements.
func BenchmarkLimit(b *testing.B) {
	const tasks, turns = 3000, 9
	m := newMetered(b)
	run := func() float64 {
		began := time.Now()
		m.submit(tasks)
		m.done()
		return tasks / time.Since(began).Seconds()
	}
	for b.Loop() {
		run() // the first is slower
		var free, bound, claims []float64
		for range turns {
			free = append(free, run())
			m.limit(10_000, 0)
			began := time.Now()
			bound = append(bound, run())
			claims = append(claims, float64(m.claims())/time.Since(began).Seconds())
			if err := m.flow().Limits.RemoveLimit(b.Context(), operator, "pay", "the next is without"); err != nil {
				b.Fatal(err)
			}
		}
		b.Logf("tasks/s without a limit: %.0f", free)
		b.Logf("tasks/s with one of 10,000: %.0f", bound)
		b.ReportMetric(median(free), "free-tasks/s")
		b.ReportMetric(median(bound), "bound-tasks/s")
		b.ReportMetric(median(claims), "claims/s")
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// claims is how often the limit has been claimed.
func (b *metered) claims() (n int64) {
	b.t.Helper()
	db, err := pgx.Connect(b.t.Context(), b.db)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(db.QueryRow(b.t.Context(), "SELECT claims FROM limits WHERE agent = 'pay'").Scan(&n), db.Close(b.t.Context())); err != nil {
		b.t.Fatal(err)
	}
	return n
}

package node

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/operate"
)

// BenchmarkLimit is what a limit costs that keeps nothing back: tasks a second over two nodes, from the first submission to the
// last ending, and CPU for each task, without a limit, with one of 10,000 at a time, and with one of 10,000 for each of 1,000
// keys, in turns; and the claims a second of the latter two, each of which is a transaction of three statements.
func BenchmarkLimit(b *testing.B) {
	const tasks, turns = 3000, 9
	m := newMetered(b)
	run := func(perSecond, cpu *[]float64) {
		began, used := time.Now(), cpuTime(b)
		m.submitOf(tasks, func(i int) int { return i % 1000 })
		m.done()
		*perSecond = append(*perSecond, tasks/time.Since(began).Seconds())
		*cpu = append(*cpu, float64((cpuTime(b)-used).Microseconds())/tasks)
	}
	for b.Loop() {
		var free, freeCPU, bound, boundCPU, claims, keyed, keyedCPU, keyClaims []float64
		run(new([]float64), new([]float64)) // the first is slower
		for range turns {
			run(&free, &freeCPU)
			for _, with := range []struct {
				limit                  operate.SetLimit
				perSecond, cpu, claims *[]float64
			}{
				{operate.SetLimit{Concurrent: 10_000}, &bound, &boundCPU, &claims},
				{operate.SetLimit{Key: "input", KeyConcurrent: 10_000}, &keyed, &keyedCPU, &keyClaims},
			} {
				m.set(m.flow().Limits, with.limit)
				began := time.Now()
				run(with.perSecond, with.cpu)
				*with.claims = append(*with.claims, float64(m.claims())/time.Since(began).Seconds())
				if err := m.flow().Limits.RemoveLimit(b.Context(), operator, "pay", "the next is another"); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, x := range []struct {
			what string
			of   []float64
		}{{"free-tasks/s", free}, {"bound-tasks/s", bound}, {"free-µs/task", freeCPU}, {"bound-µs/task", boundCPU}, {"claims/s", claims},
			{"keyed-tasks/s", keyed}, {"keyed-µs/task", keyedCPU}, {"key-claims/s", keyClaims}} {
			slices.Sort(x.of)
			b.Logf("%s: %.0f", x.what, x.of)
			b.ReportMetric(x.of[len(x.of)/2], x.what)
		}
	}
}

// cpuTime is what this process has used: nodes, NATS server, agent and client.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
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

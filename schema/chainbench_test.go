package schema_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
)

// BenchmarkChain commits a steady stream of five-step tasks to two databases by turns, one
// without chains and one with, and reports what a task costs in each: processor time of
// Commit and, on PostgreSQL, of the server's processes for the database. The figures are
// medians of rounds; the last is the median of the differences of the two in each round.
func BenchmarkChain(b *testing.B) {
	for _, st := range []struct {
		name string
		url  func(testing.TB) string
	}{{"sqlite", sqliteURL}, {"postgres", func(tb testing.TB) string { return pgtestdb.URL(tb) + "&wal_init_zero=off" }}} {
		for _, size := range []int{1, 24, 100, 1000} {
			b.Run(fmt.Sprintf("%s/batch=%d", st.name, size), func(b *testing.B) {
				var sides [2]*chainSide
				for i := range sides {
					sides[i] = newChainSide(b, st.url(b), size, i == 1)
				}
				var more []float64
				b.ResetTimer()
				for round := 0; b.Loop(); round++ {
					for k := range sides {
						sides[(round+k)%len(sides)].round(b)
					}
					off, on := sides[0].last(), sides[1].last()
					more = append(more, on-off)
				}
				b.ReportMetric(median(sides[0].costs), "off-µs/task")
				b.ReportMetric(median(sides[1].costs), "on-µs/task")
				b.ReportMetric(median(more), "more-µs/task")
				if st.name == "postgres" {
					b.ReportMetric(sides[0].walPerTask(), "off-WAL-B/task")
					b.ReportMetric(sides[1].walPerTask(), "on-WAL-B/task")
				}
			})
		}
	}
}

// chainSide is one of the two databases.
type chainSide struct {
	x        *bench
	m        meter
	stream   []core.TaskWrite
	postgres bool
	costs    []float64 // of each round, µs a task
	tasks    int
	wal      int64
}

// roundTasks is how many tasks a round ends, at least, of a stream of that size.
func roundTasks(size int) int { return max(60, 2*size) }

func newChainSide(b *testing.B, at string, size int, chained bool) *chainSide {
	b.Helper()
	s := open(b, at, schema.Options{MaxConns: 1, Chain: chained})
	c := &chainSide{x: newBench(b, s), m: meter{tb: b, db: schema.DB(s)}, stream: make([]core.TaskWrite, size), postgres: s.Dialect() == "postgres"}
	for range 40 { // tasks of every age
		if err := c.x.step(c.stream, nil); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// round runs some tasks and notes what one of them cost.
func (c *chainSide) round(b *testing.B) {
	b.Helper()
	server, wal := time.Duration(0), int64(0)
	if c.postgres {
		server, wal = c.backendCPU(), c.m.lsn()
	}
	c.x.ended, c.m.client = 0, 0
	for c.x.ended < roundTasks(len(c.stream)) {
		if err := c.x.step(c.stream, &c.m); err != nil {
			b.Fatal(err)
		}
	}
	cost := c.m.client
	if c.postgres {
		cost += c.backendCPU() - server
		c.wal += c.m.lsn() - wal
	}
	c.tasks += c.x.ended
	c.costs = append(c.costs, float64(cost.Nanoseconds())/1000/float64(c.x.ended))
}

func (c *chainSide) last() float64 { return c.costs[len(c.costs)-1] }

func (c *chainSide) walPerTask() float64 { return float64(c.wal) / float64(max(c.tasks, 1)) }

// backendCPU is what the server's processes for this database have used.
func (c *chainSide) backendCPU() time.Duration {
	pids, err := schema.ScanColumn[int](c.m.db.Query(`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`))
	if err != nil {
		c.m.tb.Fatal(err)
	}
	sum := time.Duration(0)
	for _, pid := range pids {
		sum += processCPU(pid)
	}
	return sum
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

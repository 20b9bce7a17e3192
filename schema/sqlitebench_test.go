package schema_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
)

// BenchmarkCommitGrown is BenchmarkCommit/sqlite as a service runs it: ids are
// random, and there are tasks already, so each birth goes to a page of its own in
// the index of ids.
func BenchmarkCommitGrown(b *testing.B) {
	for _, tasks := range []int{0, 300_000} {
		b.Run(fmt.Sprintf("tasks=%d/batch=2000", tasks), func(b *testing.B) { grownBench(b, tasks).run(b, 2000) })
	}
}

func (x *bench) run(b *testing.B, size int) {
	b.ReportAllocs()
	done, cpu := 0, selfCPU()
	for b.Loop() {
		if err := x.randomTasks(size); err != nil {
			b.Fatal(err)
		}
		done += size
	}
	b.ReportMetric(float64((selfCPU()-cpu).Microseconds())/float64(done), "cpu-µs/task")
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "tasks/s")
}

// randomTasks is tasks, with ids as services make them.
func (x *bench) randomTasks(size int) error {
	writes := make([]core.TaskWrite, size)
	for i := range writes {
		x.birth(&writes[i], i%benchPartitions)
		writes[i].Task.ID = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	}
	if err := x.write(writes); err != nil {
		return err
	}
	for range 5 {
		x.at = x.at.Add(time.Millisecond)
		for i := range writes {
			if err := x.answer(&writes[i]); err != nil {
				return err
			}
		}
		if err := x.write(writes); err != nil {
			return err
		}
	}
	return nil
}

// grownBench has that many tasks that have ended.
func grownBench(b *testing.B, tasks int) *bench {
	b.Helper()
	at := sqliteURL(b)
	s := open(b, at, schema.Options{})
	const fill = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
		INSERT INTO tasks (partition, number, id, type, plan_version, input_hash, state, seq, round, failure_count, origin, created_at, updated_at,
			ended_at, end_number, commit_id)
		SELECT i % ?2, 1 + i / ?2, lower(hex(randomblob(16))), 'order', 1, randomblob(32), 'processed', 6, 0, 0, 0, 1, 1, 1, 1 + i / ?2, 1 FROM n`
	if tasks > 0 {
		if _, err := schema.WriterDB(s).ExecContext(b.Context(), fill, tasks, benchPartitions); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // moves them out of the WAL
		b.Fatal(err)
	}
	x := newBench(b, open(b, at, schema.Options{}))
	for i := range x.partitions {
		p := &x.partitions[i]
		p.NextNumber += int64(tasks/benchPartitions) + 1
		p.NextEnd = p.NextNumber
	}
	return x
}

package schema_test

import (
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
)

// BenchmarkFailing runs tasks of which each is refused at its first step and so is undone: what the columns and
// indexes of failures cost those that fail.
func BenchmarkFailing(b *testing.B) {
	const size = 1000
	for name, at := range map[string]func(testing.TB) string{
		"sqlite": sqliteURL, "postgres": func(tb testing.TB) string { return pgtestdb.URL(tb) + "&wal_init_zero=off" },
	} {
		b.Run(name, func(b *testing.B) {
			s := open(b, at(b), schema.Options{MaxConns: 1})
			x := newBench(b, s)
			m := meter{tb: b, db: schema.DB(s)}
			if name == "postgres" {
				m.start()
			}
			done, cpu := 0, selfCPU()
			for b.Loop() {
				if err := x.failing(size); err != nil {
					b.Fatal(err)
				}
				done += size
			}
			if name == "postgres" {
				m.client = selfCPU() - cpu
				m.report(b, done)
				return
			}
			b.ReportMetric(float64((selfCPU()-cpu).Microseconds())/float64(done), "µs/task")
		})
	}
}

// failing runs that many tasks from birth to their failure.
func (x *bench) failing(size int) error {
	writes := make([]core.TaskWrite, size)
	for i := range writes {
		x.birth(&writes[i], i%benchPartitions)
	}
	if err := x.write(writes); err != nil {
		return err
	}
	x.at = x.at.Add(time.Millisecond)
	for i := range writes {
		w := &writes[i]
		t := w.Task
		ev := core.Event{Kind: core.EventReply, At: x.at, Actor: "agent", Seq: t.Steps[t.Out()].Out, Code: 422, Error: "no stock for " + t.ID}
		if err := core.Apply(&x.plan, t, &ev, &x.out); err != nil {
			return err
		}
		if t.State.Ended() {
			p := &x.partitions[t.Partition]
			t.EndNumber = p.NextEnd
			p.NextEnd++
		}
		*w = core.TaskWrite{Task: t, Row: x.out.Row, Records: append(w.Records[:0], x.out.Records...)}
	}
	return x.write(writes)
}

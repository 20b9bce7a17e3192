package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
)

// BenchmarkCommit runs five-step tasks through a store: a batch of births, four
// batches of answers that issue the next step, one of answers that end the task.
func BenchmarkCommit(b *testing.B) {
	stores := []struct {
		name string
		url  func(testing.TB) string
	}{{"sqlite", sqliteURL}, {"postgres", pgtestdb.URL}}
	for _, st := range stores {
		for _, size := range []int{1, 24, 100, 500, 1000} {
			b.Run(fmt.Sprintf("%s/batch=%d", st.name, size), func(b *testing.B) { benchCommit(b, open(b, st.url(b), schema.Options{}), size) })
		}
	}
}

const benchPartitions = 16

type bench struct {
	s          schema.Store
	plan       core.Plan
	partitions []core.PartitionWrite
	at         core.Instant
	input      []byte
	commit     int64
	out        core.Outcome
	turn       int
	ended      int
}

func newBench(b *testing.B, s schema.Store) *bench {
	b.Helper()
	x := &bench{
		s: s, plan: benchPlan(), at: 1_893_456_000_000_000,
		input: []byte(`{"customer":"c-17","amount":1999,"currency":"EUR","items":[{"sku":"a","n":1}]}`),
	}
	if err := s.Partitions(b.Context(), benchPartitions); err != nil {
		b.Fatal(err)
	}
	for p := range benchPartitions {
		st, err := s.TakeOver(b.Context(), p, core.Claim{Owner: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		x.partitions = append(x.partitions, core.PartitionWrite{Partition: p, Epoch: st.Epoch, NextNumber: 1, NextEnd: 1})
	}
	return x
}

func benchCommit(b *testing.B, s schema.Store, size int) {
	x := newBench(b, s)
	b.ReportAllocs()
	done, cpu := 0, selfCPU()
	for b.Loop() {
		if err := x.tasks(size); err != nil {
			b.Fatal(err)
		}
		done += size
	}
	b.ReportMetric(float64((selfCPU()-cpu).Microseconds())/float64(done), "cpu-µs/task")
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(done), "µs/task")
}

func benchPlan() core.Plan {
	p := core.Plan{Name: "order", Version: 1}
	for i := range 5 {
		p.Steps = append(p.Steps, core.Step{Name: fmt.Sprint("step", i), Agent: "agent", Undoable: true})
	}
	return p.WithDefaults()
}

// tasks runs that many tasks from birth to end.
func (x *bench) tasks(size int) error {
	writes := make([]core.TaskWrite, size)
	for i := range writes {
		x.birth(&writes[i], i%benchPartitions)
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

// birth makes w the birth of a new task.
func (x *bench) birth(w *core.TaskWrite, partition int) {
	p := &x.partitions[partition]
	t := &core.Task{
		Partition: partition, Number: p.NextNumber, ID: fmt.Sprintf("order-%d-%d", partition, p.NextNumber), Type: "order",
		Input: x.input, InputHash: make([]byte, 32),
		LockedBy: "node-1",
	}
	p.NextNumber++
	core.Birth(&x.plan, t, &core.Event{At: x.at, Actor: "bench"}, &x.out)
	*w = core.TaskWrite{Task: t, Birth: true, Records: append(w.Records[:0], x.out.Records...)}
}

// answer makes w the answer to the command that its task has out.
func (x *bench) answer(w *core.TaskWrite) error {
	t := w.Task
	ev := core.Event{Kind: core.EventReply, At: x.at, Actor: "agent", Seq: t.Steps[t.Out()].Out, Result: []byte(`{"ok":true,"reference":"r-0123456789"}`)}
	if err := core.Apply(&x.plan, t, &ev, &x.out); err != nil {
		return err
	}
	if t.State.Ended() {
		p := &x.partitions[t.Partition]
		t.EndNumber = p.NextEnd
		p.NextEnd++
		x.ended++
	}
	*w = core.TaskWrite{Task: t, Row: x.out.Row, Records: append(w.Records[:0], x.out.Records...)}
	return nil
}

func (x *bench) write(writes []core.TaskWrite) error {
	x.commit++
	for i := range x.partitions {
		x.partitions[i].After = x.commit - 1
	}
	res, err := x.s.Commit(context.Background(), &core.Batch{ID: x.commit, Node: "bench", Partitions: x.partitions, Writes: writes})
	if err == nil && (len(res.Fenced) > 0 || len(res.Duplicates) > 0) {
		err = fmt.Errorf("left out: %+v", res)
	}
	return err
}

package drone

import (
	"strconv"
	"testing"
)

func benchmarkCall(b *testing.B, o ServiceOptions) {
	all := newServices(b, o)
	calls := make([]Call, 1<<16)
	for i := range calls {
		step := Step(i % StepCount)
		calls[i] = callOf("0197c3a1-7c52-4e4b-9a7b-"+strconv.Itoa(100000000000+i/StepCount), step, 1)
	}
	ctx := b.Context()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, _ = all.Service(Step(i%len(calls)%StepCount)).Do(ctx, calls[i%len(calls)])
	}
}

// One call without latency: what the mocks add to a benchmark of Duly.
func BenchmarkCall(b *testing.B) { benchmarkCall(b, ServiceOptions{Seed: 1}) }

// The same with faults that are drawn but do not block.
func BenchmarkCallWithFaults(b *testing.B) {
	benchmarkCall(b, ServiceOptions{Seed: 1, Faults: Faults{Refused: 0.05, Transient: 0.15}})
}

// What a task of five steps costs while the books grow: a million tasks keep
// about 200 MB.
func BenchmarkBooks(b *testing.B) {
	all := newServices(b, ServiceOptions{Seed: 1})
	ctx := b.Context()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		task := "0197c3a1-7c52-4e4b-9a7b-" + strconv.Itoa(100000000000+n)
		for step := range Step(StepCount) {
			_, _ = all.Service(step).Do(ctx, callOf(task, step, 1))
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	g := NewGenerator(1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = g.Request(i)
	}
}

func BenchmarkCheck(b *testing.B) {
	all := newServices(b, ServiceOptions{Seed: 1})
	ids := make([]string, 10_000)
	outcomes := OutcomeMap{}
	for i := range ids {
		ids[i] = strconv.Itoa(i)
		outcomes[ids[i]] = Outcome{State: StateProcessed}
	}
	for b.Loop() {
		_ = all.Books().Check(ids, outcomes)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/task")
}

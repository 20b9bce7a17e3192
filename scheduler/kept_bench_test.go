package scheduler_test

import (
	"fmt"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// BenchmarkParentsAtAFullAgent is the children of several parents, each with a long list, one after the other at an agent that
// takes one at a time.
func BenchmarkParentsAtAFullAgent(b *testing.B) {
	const parents, children = 8, 300
	for b.Loop() {
		r := newFamily(&testing.T{}, core.Step{Kind: core.EachStep, Elements: "input", ElementsMax: children, Parallel: 2}, scheduler.Config{AgentWindow: 1})
		for i := range parents {
			r.tasks(0, core.Submission{Type: "family", ID: fmt.Sprint("t", i), Input: list(children)})
		}
		r.cycle()
		r.serve(ok)
		r.state("t0", core.StateProcessed)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/parents/children, "µs/child")
}

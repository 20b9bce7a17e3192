package scheduler

import (
	"fmt"
	"testing"

	"duly.dev/duly/internal/core"
)

// BenchmarkParked notes parkedMax tasks that have not begun and claims them, 512 at a time, by how many flows they are of:
// what the order of finish.go costs a parked task beside its row, which is loaded and committed for each.
func BenchmarkParked(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			q := &queues{gate: &gate{}, cfg: &Config{TenantLabel: "tenant"}}
			slot := &agentSlot{}
			ref := &planRef{plan: &core.Plan{Name: "order"}}
			entries := make([]entry, parkedMax)
			for i := range entries {
				e := &entries[i]
				e.plan = ref
				e.task = &core.Task{Number: int64(i), Type: "order", Deadline: core.Instant(i * 7919 % parkedMax), Steps: make([]core.StepState, 5)}
				for k := range e.task.Steps {
					e.task.Steps[k].Status = core.StepWaiting
				}
				if n > 1 {
					e.task.Labels = []core.Label{{Key: "tenant", Value: fmt.Sprintf("tenant%d", i%n)}, {Key: core.PriorityLabel, Value: core.Class(i % 3).String()}}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				slot.order = nil
				for i := range entries {
					q.keepOrder(slot, &entries[i])
				}
				at := slot.queue()
				for left := parkedMax; left > 0; {
					left -= len(at.take(0, 512, func(*planRef) bool { return false }, &keyTakes{}))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*parkedMax), "ns/task")
		})
	}
}

package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Many inputs of a middling size are several commits, none of which a database refuses
// for its size; all of them become tasks, and give back what they held when they end.
func TestBatchesCloseByBytes(t *testing.T) {
	const tasks, size, most = 4000, 4 << 10, core.BatchBytesMax + 8<<10
	memory := scheduler.NewMemory(1 << 40)
	r := newRig(t, scheduler.Config{InFlight: tasks, AgentWindow: tasks, Memory: memory})
	commits := 0
	r.store.BeforeCommit = func(b *core.Batch) error {
		bytes := 0
		for i := range b.Writes {
			bytes += b.Writes[i].Size()
		}
		if commits++; bytes > most {
			t.Errorf("a commit of %d tasks has %d bytes of inputs", len(b.Writes), bytes)
		}
		return nil
	}
	input := make([]byte, size)
	for i := range input {
		input[i] = '1'
	}
	for i := range tasks {
		r.tasks(0, core.Submission{Type: "order", ID: fmt.Sprint("t", i), Input: input})
	}
	r.cycle()
	if commits < 2 {
		t.Errorf("%d commits", commits)
	}
	for _, id := range []string{"t0", fmt.Sprint("t", tasks-1)} {
		r.state(id, core.StateProcessing)
	}
	if used := memory.Used(); used < tasks*size || used > tasks*(size+2<<10) {
		t.Errorf("%d bytes are held by %d tasks", used, tasks)
	}
	r.shard.Drop(0)
	if used := memory.Used(); used != 0 {
		t.Errorf("%d bytes are held by a partition that is gone", used)
	}
}

// A task holds its input and results until it ends.
func TestMemoryIsGivenBack(t *testing.T) {
	memory := scheduler.NewMemory(1 << 40)
	r := newRig(t, scheduler.Config{Memory: memory})
	r.tasks(0, core.Submission{Type: "order", ID: "t1", Input: []byte(`{}`)}, core.Submission{Type: "nosuch", ID: "t2", Input: []byte(`{}`)})
	r.cycle()
	began := memory.Used()
	for range 2 {
		r.answer(r.one(), 0)
		r.cycle()
	}
	r.state("t1", core.StateProcessed)
	if began == 0 || memory.Used() != 0 {
		t.Errorf("%d bytes were held, %d are still", began, memory.Used())
	}
}

// Parked tasks are taken up as far as memory goes, and the others when it is given back.
func TestParkedTasksAreTakenUpAsMemoryGoes(t *testing.T) {
	const tasks, size, limit = 8, 200 << 10, 1 << 20
	memory := scheduler.NewMemory(limit)
	r := newRig(t, scheduler.Config{AgentWindow: tasks, Memory: memory})
	r.store.AddPlan(orderPlan("single", 1, "a"))
	submit := func(name string, i, bytes int) {
		input := slices.Repeat([]byte{'1'}, bytes)
		r.tasks(0, core.Submission{Type: "single", ID: fmt.Sprint(name, i), Input: input})
	}
	for i := range tasks {
		submit("small", i, 1)
	}
	r.cycle()
	for i := range tasks {
		submit("large", i, size)
		r.cycle()
		r.state(fmt.Sprint("large", i), core.StatePending)
	}
	most := int64(0)
	for range 4 * tasks {
		for _, c := range r.bus.take() {
			r.answer(c, 0)
		}
		r.cycle()
		most = max(most, memory.Used())
	}
	if most > limit+size+2<<10 {
		t.Errorf("%d bytes were held, the limit is %d", most, limit)
	}
	for i := range tasks {
		r.state(fmt.Sprint("large", i), core.StateProcessed)
	}
}

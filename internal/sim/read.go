package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
)

// AddPlan stores a plan with its defaults filled in.
func (m *MemStore) AddPlan(p core.Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plans = append(m.plans, p.WithDefaults())
}

// Plans returns every stored plan.
func (m *MemStore) Plans(context.Context) ([]core.Plan, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.PlansRead++
	if len(m.Unreadable) > 0 {
		return slices.Clone(m.plans), m.Unreadable
	}
	return slices.Clone(m.plans), nil
}

// Cursors returns every partition's own row.
func (m *MemStore) Cursors(context.Context) ([]core.PartitionState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []core.PartitionState
	for _, st := range m.partitions {
		all = append(all, *st)
	}
	slices.SortFunc(all, func(a, b core.PartitionState) int { return cmp.Compare(a.Partition, b.Partition) })
	return all, nil
}

// CursorsOf returns the rows of some partitions, and of those of an owner; empty: of none.
func (m *MemStore) CursorsOf(_ context.Context, partitions []int, owner string) ([]core.PartitionState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []core.PartitionState
	for _, p := range partitions {
		if st := m.partitions[p]; st != nil && (owner == "" || st.Owner != owner) {
			all = append(all, *st)
		}
	}
	for _, st := range m.partitions {
		if owner != "" && st.Owner == owner {
			all = append(all, *st)
		}
	}
	slices.SortFunc(all, func(a, b core.PartitionState) int { return cmp.Compare(a.Partition, b.Partition) })
	return slices.CompactFunc(all, func(a, b core.PartitionState) bool { return a.Partition == b.Partition }), nil
}

// LoadActive returns the tasks that an owner holds in memory, by number.
func (m *MemStore) LoadActive(_ context.Context, as core.AsOf, afterNumber int64, limit int) ([]core.Saved, error) {
	return m.saved(as, limit, func() []*row {
		return m.inOrder(as.Partition, func(r *row) bool { return r.task.Number > afterNumber && r.task.Active() })
	})
}

// LoadNumbers returns the tasks of those numbers that there are.
func (m *MemStore) LoadNumbers(_ context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	found := func() (rows []*row) {
		for _, n := range numbers {
			if r := m.rows[rowKey{as.Partition, n}]; r != nil {
				rows = append(rows, r)
			}
		}
		return rows
	}
	saved, err := m.saved(as, len(numbers), found)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.NumbersRead += len(saved)
	return saved, err
}

// LoadIDs returns the tasks of those ids that there are.
func (m *MemStore) LoadIDs(_ context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	return m.saved(as, len(ids), func() (rows []*row) {
		for _, id := range ids {
			if r := m.ids[idKey{as.Partition, id}]; r != nil {
				rows = append(rows, r)
			}
		}
		return rows
	})
}

// asOf refuses the read of an owner if the partition's row is not as it left it. Called with the lock.
func (m *MemStore) asOf(as core.AsOf) error {
	st := m.partition(as.Partition)
	return as.Check(st.Epoch, st.LastCommit)
}

// saved returns the first of the rows that find finds, in the order of their numbers.
func (m *MemStore) saved(as core.AsOf, limit int, find func() []*row) ([]core.Saved, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return nil, err
	}
	rows := find()
	slices.SortFunc(rows, compareRows)
	rows = slices.Compact(rows)
	saved := make([]core.Saved, 0, min(limit, len(rows)))
	for _, r := range rows[:min(limit, len(rows))] {
		saved = append(saved, core.Saved{Row: r.task, Journal: slices.Clone(r.journal), Commits: slices.Clone(r.commits)})
	}
	return saved, nil
}

// Waiting returns the numbers of the tasks parked for the agent, oldest first.
func (m *MemStore) Waiting(_ context.Context, as core.AsOf, agent string, afterNumber int64, limit int) ([]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return nil, err
	}
	var numbers []int64
	for _, r := range m.inOrder(as.Partition, func(r *row) bool {
		return r.task.Number > afterNumber && r.task.State == core.StatePending && r.task.WaitsFor == agent
	}) {
		numbers = append(numbers, r.task.Number)
	}
	return numbers[:min(limit, len(numbers))], nil
}

// WaitingAgents returns the agents that some parked task waits for.
func (m *MemStore) WaitingAgents(_ context.Context, as core.AsOf) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return nil, err
	}
	var agents []string
	for _, r := range m.inOrder(as.Partition, func(r *row) bool { return r.task.State == core.StatePending }) {
		if a := r.task.WaitsFor; a != "" && !slices.Contains(agents, a) {
			agents = append(agents, a)
		}
	}
	return agents, nil
}

// Untold returns what ended after an end number, in that order.
func (m *MemStore) Untold(_ context.Context, as core.AsOf, afterEnd int64, limit int) ([]core.Ending, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.asOf(as); err != nil {
		return nil, err
	}
	var endings []core.Ending
	for _, r := range m.inOrder(as.Partition, func(r *row) bool { return r.task.EndNumber > afterEnd }) {
		endings = append(endings, m.ending(r))
	}
	slices.SortFunc(endings, func(a, b core.Ending) int { return cmp.Compare(a.EndNumber, b.EndNumber) })
	return endings[:min(limit, len(endings))], nil
}

func (m *MemStore) ending(r *row) core.Ending {
	e := core.Ending{
		Partition: r.task.Partition, EndNumber: r.task.EndNumber, ID: r.task.ID, Type: r.task.Type, State: r.task.State,
		Seq: r.task.Seq, Labels: core.FormatLabels(r.task.Labels), CreatedAt: r.task.CreatedAt, At: r.task.EndedAt, ReplyTo: r.task.ReplyTo,
	}
	if plan, t, err := m.replay(r); err == nil && t.State != core.StateProcessed {
		e.Error = t.Why
		if plan != nil && t.FailedStep > 0 {
			e.Step = plan.Steps[t.FailedStep-1].Name
		}
	}
	return e
}

// Task returns a task as stored, replayed, or nil.
func (m *MemStore) Task(partition int, id string) *core.Task {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ids[idKey{partition, id}]
	if r == nil {
		return nil
	}
	_, t, err := m.replay(r)
	if err != nil {
		return nil
	}
	return t
}

// Partition returns the partition's own row.
func (m *MemStore) Partition(partition int) core.PartitionState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.partition(partition)
}

// History is the task's journal, for a person.
func (m *MemStore) History(partition int, id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ids[idKey{partition, id}]
	if r == nil {
		return "task " + id + " is not stored"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "task %s, partition %d, number %d: %s, bound %d, deadline %d, end %d\n",
		id, partition, r.task.Number, r.task.State, r.task.Bound, r.task.Deadline, r.task.EndNumber)
	for i := range r.journal {
		j := &r.journal[i]
		fmt.Fprintf(&b, "%4d %d %-13s %-10s step %d %-7s try %d", j.Seq, j.At, j.Kind, j.State, j.Step+1, j.StepStatus, j.Attempt)
		if j.Next >= 0 {
			fmt.Fprintf(&b, " → step %d try %d undo %v", j.Next+1, j.NextAttempt, j.Undo)
		}
		fmt.Fprintf(&b, " due %d quiet %d %s %s %s\n", j.Due, j.EffectsPossibleUntil, j.Actor, j.Error, j.Reason)
	}
	return b.String()
}

// RemovePlan forgets every version of a plan, as no store may.
func (m *MemStore) RemovePlan(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plans = slices.DeleteFunc(m.plans, func(p core.Plan) bool { return p.Name == name })
}

// Kinds counts the journal rows of each kind.
func (m *MemStore) Kinds() map[core.Kind]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	kinds := map[core.Kind]int{}
	for _, r := range m.rows {
		for i := range r.journal {
			kinds[r.journal[i].Kind]++
		}
	}
	return kinds
}

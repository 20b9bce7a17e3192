package schema

import (
	"context"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Questions of operators about the flow of tasks. Each query goes over a bounded number of rows of one
// partition, by an index that holds only the tasks in question.
const (
	// Of the tasks parked at one agent: how many the query went over, how many of them match the filter, and
	// the earliest deadline of those.
	qParkedAt = `SELECT count(*), COALESCE(sum(CASE WHEN is_of THEN 1 ELSE 0 END), 0), min(CASE WHEN is_of THEN deadline END) FROM (
	SELECT t.deadline, `
	qParkedThen = ` AS is_of FROM tasks t WHERE t.partition = ?1 AND t.waits_for = ?2 ORDER BY t.number LIMIT ?3) AS parked`
	qParkedOf   = `SELECT type, plan_version, count(*), min(deadline) FROM (SELECT type, plan_version, deadline FROM tasks
	WHERE partition = ?1 AND waits_for = ?2 ORDER BY number LIMIT ?3) AS parked GROUP BY type, plan_version ORDER BY type, plan_version`
	qActiveSome = `SELECT count(*) FROM (SELECT 1 FROM tasks WHERE partition = ?1 AND state IN ('processing', 'undoing') LIMIT ?2) AS active`
)

// Parked implements [operate.FlowReader].
func (a *asked) Parked(ctx context.Context, f operate.ParkedFilter) (operate.Parked, error) {
	all := operate.Parked{}
	err := a.of.eachParked(ctx, f, func(_ string, one operate.Parked) {
		all.Tasks.N += one.Tasks.N
		all.Tasks.AtLeast = all.Tasks.AtLeast || one.Tasks.AtLeast
		if one.First != 0 && (all.First == 0 || one.First < all.First) {
			all.First = one.First
		}
	})
	return all, err
}

// ParkedAt implements [operate.FlowReader].
func (a *asked) ParkedAt(ctx context.Context) (map[string][]operate.ParkedOf, error) {
	all := map[string][]operate.ParkedOf{}
	err := a.of.eachAgent(ctx, func(partition int, agent string) error {
		found, err := scanAll(ctx, a.of, func(row interface{ Scan(...any) error }) (p operate.ParkedOf, err error) {
			var first instant
			err = row.Scan(&p.Type, &p.Version, &p.Tasks.N, &first)
			p.First = core.Instant(first)
			return p, err
		}, qParkedOf, partition, agent, operate.CountExactMax+1)
		if err != nil {
			return err
		}
		// The query stops after so many parked tasks, whatever their types: then each type's count may be too
		// low.
		looked := int64(0)
		for i := range found {
			looked += found[i].Tasks.N
		}
		for i := range found {
			found[i].Tasks.AtLeast = looked > operate.CountExactMax
			all[agent] = addParked(all[agent], found[i])
		}
		return nil
	})
	return all, err
}

// addParked adds up what is parked in several partitions, by type and version of the plan.
func addParked(all []operate.ParkedOf, one operate.ParkedOf) []operate.ParkedOf {
	i := slices.IndexFunc(all, func(p operate.ParkedOf) bool { return p.Type == one.Type && p.Version == one.Version })
	if i < 0 {
		return append(all, one)
	}
	p := &all[i]
	p.Tasks.N, p.Tasks.AtLeast = p.Tasks.N+one.Tasks.N, p.Tasks.AtLeast || one.Tasks.AtLeast
	if one.First != 0 && (p.First == 0 || one.First < p.First) {
		p.First = one.First
	}
	return all
}

// InFlight implements [operate.FlowReader].
func (a *asked) InFlight(ctx context.Context) (map[int]operate.Count, error) {
	partitions, err := column[int](ctx, a.of, `SELECT partition FROM partitions`)
	if err != nil {
		return nil, fmt.Errorf("tasks in flight: %w", err)
	}
	counts := map[int]operate.Count{}
	for _, p := range partitions {
		n, err := column[int64](ctx, a.of, qActiveSome, p, operate.CountExactMax+1)
		if err != nil {
			return nil, fmt.Errorf("tasks in flight of partition %d: %w", p, err)
		}
		counts[p] = operate.Count{N: min(n[0], operate.CountExactMax), AtLeast: n[0] > operate.CountExactMax}
	}
	return counts, nil
}

// eachParked calls yield for each agent and partition with what is parked there and matches the filter.
func (r *reader) eachParked(ctx context.Context, f operate.ParkedFilter, yield func(agent string, one operate.Parked)) error {
	return r.eachAgent(ctx, func(partition int, agent string) error {
		if len(f.Agents) > 0 && !slices.Contains(f.Agents, agent) {
			return nil
		}
		one, err := r.parkedAt(ctx, partition, agent, f)
		if err == nil {
			yield(agent, one)
		}
		return err
	})
}

// eachAgent calls look for each partition and each agent that tasks are parked at in it.
func (r *reader) eachAgent(ctx context.Context, look func(partition int, agent string) error) error {
	partitions, err := column[int](ctx, r, `SELECT partition FROM partitions`)
	if err != nil {
		return fmt.Errorf("parked tasks: %w", err)
	}
	for _, p := range partitions {
		agents, err := r.WaitingAgents(ctx, core.AsOf{Partition: p})
		if err != nil {
			return fmt.Errorf("agents that tasks of partition %d wait for: %w", p, err)
		}
		for _, agent := range agents {
			if _, _, plan := core.AwaitedPlan(agent); plan { // tasks wait there for a plan, not for an agent
				continue
			}
			if err := look(p, agent); err != nil {
				return fmt.Errorf("tasks of partition %d parked at %s: %w", p, agent, err)
			}
		}
	}
	return nil
}

// parkedAt counts the tasks of a partition that are parked at an agent and match the filter.
func (r *reader) parkedAt(ctx context.Context, partition int, agent string, f operate.ParkedFilter) (one operate.Parked, err error) {
	args := []any{partition, agent, operate.CountExactMax + 1}
	param := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("?%d", len(args))
	}
	// Conditions go into the select list, not into the WHERE: the limit is to bound the rows that are gone
	// over.
	is := `(1 = 1`
	if f.Type != "" {
		is += ` AND t.type = ` + param(f.Type)
	}
	if f.Label != (core.Label{}) {
		is += ` AND EXISTS (SELECT 1 FROM labels l WHERE l.partition = t.partition AND l.number = t.number AND l.key = ` + param(f.Label.Key) +
			` AND l.value = ` + param(f.Label.Value) + `)`
	}
	for row := range each(r.query(ctx, qParkedAt+is+`)`+qParkedThen, args...)) {
		var looked int64
		var first instant
		if err := row.Scan(&looked, &one.Tasks.N, &first); err != nil {
			return one, err
		}
		one.First = core.Instant(first)
		one.Tasks.AtLeast = looked > operate.CountExactMax
		one.Tasks.N = min(one.Tasks.N, operate.CountExactMax)
	}
	return one, nil
}

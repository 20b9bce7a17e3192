package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// How stored tasks are brought in flight.

// find returns the task with an id, from memory or from the store; stored reports whether there is one. e is also nil if the
// task exists and cannot be loaded here. If that is because its plan cannot be read here, find sets cycle.unread to the plan.
func (s *Shard) find(ctx context.Context, p *partition, id string) (e *entry, stored bool, err error) {
	s.cycle.unread = nil
	if e := p.ids[id]; e != nil {
		s.cycle.use(p, e)
		if _, version, awaits := core.AwaitedPlan(e.task.WaitsFor); awaits && e.plan == nil {
			_, s.cycle.unread, err = s.plans.of(ctx, p, e.task.Type, version, false)
		}
		return e, true, err
	}
	saved, err := s.store.LoadIDs(ctx, p.asOf(), []string{id})
	if err != nil {
		return nil, false, fmt.Errorf("task %s: %w", id, err)
	}
	if len(saved) == 0 {
		return nil, false, nil
	}
	if err := s.loadParents(ctx, p, saved); err != nil {
		return nil, true, err
	}
	e, err = s.load(ctx, p, &saved[0])
	return e, true, err
}

// loadNumbers returns the tasks with these numbers, and loads those that are not in flight. Tasks that are
// gone or cannot be loaded are left out.
func (s *Shard) loadNumbers(ctx context.Context, p *partition, numbers []int64) ([]*entry, error) {
	entries := make([]*entry, 0, len(numbers))
	var missing []int64
	for _, n := range numbers {
		if e := p.tasks[n]; e != nil {
			s.cycle.use(p, e)
			entries = append(entries, e)
		} else {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 {
		return entries, nil
	}
	saved, err := s.store.LoadNumbers(ctx, p.asOf(), missing)
	if err != nil {
		return nil, fmt.Errorf("tasks of partition %d: %w", p.id, err)
	}
	if err := s.loadParents(ctx, p, saved); err != nil {
		return nil, err
	}
	for i := range saved {
		e, err := s.load(ctx, p, &saved[i])
		if err != nil {
			return nil, err
		}
		if e != nil {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// loadParents loads the parents, and their parents, of children that are about to be loaded.
func (s *Shard) loadParents(ctx context.Context, p *partition, saved []core.Saved) error {
	var missing []int64
	seen := map[int64]bool{}
	for i := range saved {
		up := saved[i].Row.Parent
		if up == 0 || seen[up] || p.tasks[up] != nil {
			continue
		}
		seen[up] = true
		if !inPage(saved[:i], up) { // the parent is in the page, before its child
			missing = append(missing, up)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err := s.loadNumbers(ctx, p, missing)
	return err
}

// inPage reports whether a page, which is sorted by number, has a task.
func inPage(saved []core.Saved, number int64) bool {
	for low, high := 0, len(saved); low < high; {
		switch mid := (low + high) / 2; {
		case saved[mid].Row.Number == number:
			return true
		case saved[mid].Row.Number < number:
			low = mid + 1
		default:
			high = mid
		}
	}
	return false
}

// load replays a stored task and brings it in flight, unless it is there already as an ancestor of another.
// nil: it cannot be loaded, which is logged.
func (s *Shard) load(ctx context.Context, p *partition, saved *core.Saved) (*entry, error) {
	if e := p.tasks[saved.Row.Number]; e != nil {
		s.cycle.use(p, e)
		return e, nil
	}
	if len(saved.Journal) == 0 && saved.Row.State.Ended() {
		s.log.Info("a request about a task changed nothing: its journal is forgotten", "task", saved.Row.ID)
		return nil, nil
	}
	e := &entry{round: inRound{whole: true}, leased: s.cfg.leased()}
	version := saved.Row.PlanVersion
	_, awaited, awaits := core.AwaitedPlan(saved.Row.WaitsFor)
	if awaits {
		version = awaited
	}
	if version != 0 && saved.Err == nil {
		ref, unread, err := s.plans.of(ctx, p, saved.Row.Type, version, false)
		switch {
		case err != nil:
			return nil, err
		case unread != nil && !awaits:
			s.cycle.unread = unread
			s.leftAlone.note(s.log, p, saved, unread)
			return nil, nil
		case unread != nil:
			s.cycle.unread = unread
		case ref != nil:
			e.replan(ref)
		case !awaits:
			s.log.Error("ALERT: a stored task names a plan that is not stored", "event", "plan-missing", "task", saved.Row.ID, "type", saved.Row.Type, "version", version)
		}
	}
	t, err := core.Replay(e.plan.known(), saved)
	if err != nil {
		s.leftAlone.note(s.log, p, saved, err)
		return nil, nil
	}
	e.replayed(t, saved.Commits)
	p.add(e)
	s.families.restore(p, e, saved)
	s.cycle.use(p, e)
	return e, nil
}

// journalGone reports whether the journal of an ended task has been forgotten since the task was loaded. An
// ended task may be in memory for long, for the sake of its children.
func (s *Shard) journalGone(ctx context.Context, p *partition, e *entry) (bool, error) {
	if state := e.task.State; e.round.whole || state != core.StateProcessed && state != core.StateUndone {
		return false, nil
	}
	saved, err := s.store.LoadNumbers(ctx, p.asOf(), []int64{e.task.Number})
	if err != nil {
		return false, fmt.Errorf("task %s: %w", e.task.ID, err)
	}
	if len(saved) == 0 || len(saved[0].Journal) == 0 {
		return true, nil
	}
	e.round.whole = true
	return false, nil
}

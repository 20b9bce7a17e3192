package sim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// show tells a task as HTTP's GET does: show t1.
func (s *stage) show(id string, _ args) {
	v, err := s.store.Get(context.Background(), s.partitionOf(id), id)
	if errors.Is(err, core.ErrNotFound) {
		s.line("%s is no task", id)
		return
	}
	if err != nil {
		s.t.Fatal(err)
	}
	steps := ""
	for _, st := range v.Steps {
		steps += fmt.Sprintf(" %s %s %d,", st.Name, st.Status, st.Attempt)
	}
	text := fmt.Sprintf("%s: %s, plan version %d, round %d, %d failures,%s", id, v.State, v.PlanVersion, v.Round, v.Failures, steps)
	text = strings.TrimSuffix(text, ",")
	if v.LockedBy != "" {
		text += "; locked by " + v.LockedBy
	}
	if v.WaitsFor != "" {
		text += "; waits for room at " + v.WaitsFor
	}
	if v.Reason != "" {
		text += "; because: " + v.Reason
	}
	s.line("%s", text)
}

// end lets the last cursors be committed, tells what is left, and holds it to
// the invariants: every accepted task has ended and was published, the books of the
// services agree with how, no reply counted late, nothing is in memory.
func (s *stage) end() {
	s.pass(time.Second)
	many := s.quiet
	s.quiet = false
	ids := slices.Sorted(maps.Keys(s.accepted))
	states := map[core.State]int{}
	known := map[string]bool{}
	all := s.allSaved()
	descendants := families(all)
	for _, id := range ids {
		saved, ok := all[id]
		if !ok {
			if !s.refusedID(id) && s.dead == 0 {
				s.wrong("task %s was accepted and is not stored", id)
			}
			continue
		}
		states[saved.Row.State]++
		if len(ids) <= 20 {
			s.show(id, nil)
			s.line("    journal: %s", s.journal(&saved))
		}
		s.checkTask(&saved, known)
		s.endFamily(all, descendants[id], id, known)
	}
	s.line("tasks: %s", inWords(states))
	s.endBooks(len(ids) <= 20 && !many)
	s.endPartitions(len(ids) <= 20 && !many)
	for _, name := range slices.Sorted(maps.Keys(s.agents)) {
		for key := range s.agents[name].book.on {
			if !known[key] {
				s.wrong("the effect %s of %s belongs to no task that may have it", key, name)
			}
		}
	}
}

// allSaved is every task as stored, by id.
func (s *stage) allSaved() map[string]core.Saved {
	ctx, all := context.Background(), map[string]core.Saved{}
	cursors, err := s.store.Cursors(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range cursors {
		for first := int64(1); first < p.NextNumber; first += 1000 {
			var numbers []int64
			for n := first; n < min(first+1000, p.NextNumber); n++ {
				numbers = append(numbers, n)
			}
			found, err := s.store.LoadNumbers(ctx, core.AsOf{Partition: p.Partition}, numbers)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, t := range found {
				all[t.Row.ID] = t
			}
		}
	}
	return all
}

func inWords(states map[core.State]int) string {
	var words []string
	for _, st := range slices.Sorted(maps.Keys(states)) {
		words = append(words, fmt.Sprintf("%d %s", states[st], st))
	}
	return strings.Join(words, ", ")
}

func (s *stage) refusedID(id string) bool {
	return slices.ContainsFunc(s.refused, func(r core.Status) bool { return r.ID == id })
}

// journal is the task's journal in a line.
func (s *stage) journal(saved *core.Saved) string {
	plan := s.plans[saved.Row.Type][saved.Row.PlanVersion]
	words := make([]string, len(saved.Journal))
	for i := range saved.Journal {
		r := &saved.Journal[i]
		words[i] = string(r.Kind)
		if r.Step >= 0 && plan != nil {
			words[i] += " " + plan.Steps[r.Step].Name
		}
		if r.Next >= 0 && plan != nil {
			words[i] += " → " + plan.Steps[r.Next].Name
		}
	}
	return strings.Join(words, ", ")
}

// checkTask holds one task to the services' books and to what was published.
func (s *stage) checkTask(saved *core.Saved, known map[string]bool) {
	t := &saved.Row
	if !t.State.Ended() {
		s.wrong("task %s has not ended, it is %s", t.ID, t.State)
	}
	if published := s.ended[t.ID]; len(published) == 0 || published[len(published)-1] != t.State {
		s.wrong("task %s is %s, published was %v", t.ID, t.State, published)
	}
	if t.State == core.StateError && len(s.accepted) <= 20 && !s.counted && !s.alerts.tasks[t.ID] {
		s.wrong("task %s is in error and no operator knows", t.ID)
	}
	due := map[int]core.Instant{} // by step
	round := 0
	for i := range saved.Journal {
		j := &saved.Journal[i]
		round = j.Round
		switch j.Kind {
		case core.KindDone, core.KindFailed, core.KindRefused, core.KindUndone, core.KindUndoFailed, core.KindUndoRefused:
			if by, out := due[j.Step]; j.At >= by && s.takesReply(t, j, out) {
				s.wrong("task %s: row %d takes a reply at %s to a command that was over at %s", t.ID, j.Seq, s.at(j.At), s.at(by))
			}
		}
		if j.Next >= 0 {
			due[j.Next] = j.Due
		}
	}
	s.checkBooks(t, round, known)
}

func (s *stage) checkBooks(t *core.Task, round int, known map[string]bool) {
	plan := s.plans[t.Type][t.PlanVersion]
	if plan == nil {
		return
	}
	view, err := s.store.Get(context.Background(), t.Partition, t.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	for i, step := range plan.Steps {
		if step.Kind != core.CallStep {
			continue
		}
		key := core.Key(t.ID, step.Name, round)
		on := s.agent(step.Agent).book.on[key]
		if t.State == core.StateProcessed || t.State == core.StateError {
			known[key] = true
		}
		skipped := view.Steps[i].Status == core.StepSkipped.String()
		switch {
		case t.State == core.StateProcessed && skipped && on:
			s.wrong("task %s is processed without %s, and %s has %s", t.ID, step.Name, step.Agent, key)
		case t.State == core.StateProcessed && step.Undoable && !on && !skipped:
			s.wrong("task %s is processed, and %s has not %s", t.ID, step.Agent, key)
		case t.State == core.StateUndone && on:
			s.wrong("task %s is undone, and %s has %s", t.ID, step.Agent, key)
		}
	}
}

// endBooks tells what the services keep, and that nothing was made twice.
func (s *stage) endBooks(each bool) {
	for _, name := range slices.Sorted(maps.Keys(s.agents)) {
		book := &s.agents[name].book
		twice := 0
		for key, n := range book.made {
			if n > 1 {
				twice++
				s.wrong("%s has made %s %d times", name, key, n)
			}
		}
		if each {
			text := "books of " + name + ": " + strings.Join(slices.Sorted(maps.Keys(book.on)), ", ")
			if len(book.tomb) > 0 {
				text += "; cancelled " + strings.Join(slices.Sorted(maps.Keys(book.tomb)), ", ")
			}
			s.line("%s", text)
		} else {
			s.line("books of %s: %d, of those made twice: %d", name, len(book.on), twice)
		}
	}
}

// endPartitions tells and checks the partitions' own rows.
func (s *stage) endPartitions(each bool) {
	all, err := s.store.Cursors(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	published := int64(0)
	for _, p := range all[:min(len(all), s.partitions)] {
		if p.Told != p.NextEnd-1 {
			s.wrong("partition %d has published %d of %d endings", p.Partition, p.Told, p.NextEnd-1)
		}
		published += p.Told
		if each {
			s.line("partition %d: owner %s, epoch %d, read tasks to %d, controls to %d, endings published %d of %d",
				p.Partition, p.Owner, p.Epoch, p.Cursor, p.ControlCursor, p.Told, p.NextEnd-1)
		}
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			n := s.nodes[name]
			if epoch, ok := n.shard.Owns(p.Partition); n.up && ok && epoch == p.Epoch && n.shard.Load(p.Partition) != 0 {
				s.wrong("partition %d: %s still has %d tasks in flight", p.Partition, name, n.shard.Load(p.Partition))
			}
		}
	}
	if !each {
		s.line("endings published: %d", published)
	}
}

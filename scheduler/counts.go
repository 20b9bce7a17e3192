package scheduler

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// counts returns the counters of the task's type; a task without a plan counts as other.
func (t *tally) counts(e *entry) *typeCounts {
	if e.plan != nil {
		return e.plan.counts
	}
	return &t.types.other
}

// countEnd counts a committed ending. born: the task was created with it.
func (t *tally) countEnd(e *entry, born bool) {
	c := t.counts(e)
	if e.plan == nil && born {
		c.created.Add(1) // without a plan there is no effect "received" to count it by
	}
	if i := slices.Index(ends[:], e.task.State); e.task.State == core.StateUndone && e.task.Asked {
		c.asked.Add(1)
	} else if i >= 0 {
		c.ended[i].Add(1)
	}
	c.took.add(e.task.EndedAt.Sub(max(e.task.CreatedAt, e.task.StartAt)))
}

// CycleBounds are the bounds of Snapshot.Cycles, in rising order.
var CycleBounds = [...]time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}

// Stats counts what a shard did; read it between commit cycles.
type Stats struct {
	Commits int64
	Writes  int64
	Records int64
	// Stale counts events that changed nothing, because the task had moved on.
	Stale int64
	// Forged counts replies whose token is not that of a command of ours.
	Forged     int64
	Duplicates int64
	// Poisoned counts tasks whose row the database refused.
	Poisoned int64
	// Republished counts endings that were published again.
	Republished int64
	// Looks counts effects of rounds that were looked at when they left or were taken back; tests hold it to
	// a bound.
	Looks int64
	// Do and Undo count commands that left.
	Do, Undo int64
	// UndoTrouble counts undos that ran into trouble and go on.
	UndoTrouble int64
	Kinds       Kinds
}

// Cycles counts the commit cycles that committed something, by how long they took.
type Cycles struct {
	Counts [len(CycleBounds) + 1]int64 // by the first bound that is not less; the last: longer than all
	Sum    time.Duration
}

func (c *Cycles) add(took time.Duration) {
	i, _ := slices.BinarySearch(CycleBounds[:], took)
	c.Counts[i]++
	c.Sum += took
}

// Away is an agent that tasks wait for because nobody takes their commands.
type Away struct {
	Agent string
	// Tasks counts the tasks that wait.
	Tasks int
	// Since is when the shard first saw that.
	Since core.Instant
	// First is the earliest deadline of these tasks.
	First core.Instant
	// Steps are the steps at which they wait.
	Steps []AwayStep
}

// AwayStep is a step of a plan that waits for such an agent.
type AwayStep struct {
	Type, Step string
	Tasks      int
	// Unable is whether an agent is there and has answered that it does not serve the step.
	Unable bool
}

// add adds tasks that wait at a step. first is their earliest deadline.
func (a *Away) add(step AwayStep, first core.Instant) {
	a.First = earlier(a.First, first)
	if i := slices.IndexFunc(a.Steps, func(s AwayStep) bool { return s.Type == step.Type && s.Step == step.Step && s.Unable == step.Unable }); i >= 0 {
		a.Steps[i].Tasks += step.Tasks
		return
	}
	a.Steps = append(a.Steps, step)
}

// TypeCount is what became of the tasks of one type, since the process began.
type TypeCount struct {
	Type    string
	Created int64
	// Ended counts ends by state, without those in Asked.
	Ended map[core.State]int64
	// Asked counts tasks that were undone because somebody asked for it.
	Asked int64
	// Took is how long tasks took from the instant from which they might begin until their end.
	Took Latency
	// Missed counts tasks whose deadline passed or had no time left from the start.
	Missed int64
}

// StepCount is how long the steps of one type of task took at one agent, from the first attempt that counts
// until done.
type StepCount struct {
	Type, Agent string
	Took        Latency
}

// AgentCount counts the attempts, do and undo, that an agent failed, refused, or did not answer by the
// complete-by.
type AgentCount struct {
	Agent                    string
	Failed, Refused, Overdue int64
}

// Snapshot is what a scheduler has counted, and how it stands.
type Snapshot struct {
	Stats Stats
	// Types may name a type more than once, as each shard counts its own.
	Types      []TypeCount
	Steps      []StepCount
	Agents     []AgentCount
	Cycles     Cycles
	InFlight   int
	Window     int
	Overloaded bool
	Memory     int64 // bytes that tasks in flight hold
	Owned      []int // partitions
	Away       []Away
	Openings   int64 // of breakers, that this scheduler decided
}

// read adds the counts to a snapshot.
func (t *tally) read(to *Snapshot) {
	t.types.each(countedOther, func(name string, c *typeCounts) {
		count := TypeCount{Type: name, Created: c.created.Load(), Ended: map[core.State]int64{}, Asked: c.asked.Load(), Took: c.took.read(), Missed: c.missed.Load()}
		for i := range ends {
			count.Ended[ends[i]] = c.ended[i].Load()
		}
		to.Types = append(to.Types, count)
	})
	t.calls.each(typeStep{countedOther, countedOther}, func(of typeStep, took *latency) {
		to.Steps = append(to.Steps, StepCount{of.taskType, of.agent, took.read()})
	})
	t.agents.each(countedOther, func(name string, c *agentCounts) {
		to.Agents = append(to.Agents, AgentCount{name, c.failed.Load(), c.refused.Load(), c.overdue.Load()})
	})
}

func (s *Stats) add(o *Stats) {
	s.Commits += o.Commits
	s.Writes += o.Writes
	s.Records += o.Records
	s.Stale += o.Stale
	s.Forged += o.Forged
	s.Duplicates += o.Duplicates
	s.Poisoned += o.Poisoned
	s.Republished += o.Republished
	s.Looks += o.Looks
	s.Do += o.Do
	s.Undo += o.Undo
	s.UndoTrouble += o.UndoTrouble
	s.Kinds.add(&o.Kinds)
}

// misses reports whether any task of the shard waits because nobody takes its command.
func (o *owned) misses() bool {
	for _, p := range o.partitions {
		for _, slot := range p.agents {
			for range slot.missed {
				return true
			}
		}
	}
	return false
}

// missed yields the tasks that wait at the agent because nobody takes their command, with the step.
func (slot *agentSlot) missed(yield func(*entry, int) bool) {
	for _, e := range slot.waiting {
		if step := e.missing(slot, 0); step >= 0 && !yield(e, step) {
			return
		}
	}
	for _, e := range slot.unable {
		if step := e.missing(slot, core.CodeUnable); step >= 0 && !yield(e, step) {
			return
		}
	}
}

// agentsAway returns the agents that tasks of the shard wait for because nobody takes their commands. before
// is the last result: an agent that is in it keeps its Since.
func (o *owned) agentsAway(now core.Instant, before []Away) []Away {
	var all []Away
	for _, p := range o.partitions {
		for _, slot := range p.agents {
			at := -1
			for e, step := range slot.missed {
				if at < 0 {
					at = slices.IndexFunc(all, func(a Away) bool { return a.Agent == slot.name })
				}
				if at < 0 {
					at, all = len(all), append(all, Away{Agent: slot.name})
				}
				all[at].Tasks++
				all[at].add(AwayStep{Type: e.plan.plan.Name, Step: e.plan.plan.Steps[step].Name, Tasks: 1, Unable: e.task.Steps[step].Said != 0}, e.task.Deadline)
			}
		}
	}
	for i := range all {
		all[i].Since = now
		if at := slices.IndexFunc(before, func(a Away) bool { return a.Agent == all[i].Agent }); at >= 0 {
			all[i].Since = before[at].Since
		}
	}
	return all
}

package scheduler

import "duly.dev/duly/internal/core"

// partition is what a shard knows of one partition it owns.
type partition struct {
	id    int
	epoch int64
	last  int64 // the id of the newest commit, or of the takeover
	// recorded is the newest commit that is recorded outside the database.
	recorded int64
	rewound  int64               // as in core.Evidence
	takeover core.PartitionState // what the takeover found and made of it; a former owner may know of more
	// readUntil: submissions up to here that may have run are read again.
	readUntil uint64

	uncounted core.Instant // until when tasks that are left alone may have commands out

	deferred []deferredControl // requests that wait: see deferred.go

	positions
	outbox
	saved core.PartitionWrite // as last committed

	nextNumber int64
	inFlight
	agentSlots
	ownedAt core.Instant // when the store last said that it is ours
	dirty   bool         // has a write in the cycle that is on
	noMore  bool         // what is parked is left to the next owner
	lost    bool         // fenced: dropped at the end of the cycle
}

// agentSlots are the agents of a partition.
type agentSlots struct {
	slots  map[string]*agentSlot
	agents []*agentSlot // the same, as they came
	full   int          // agents at their limit
	book   *agentBook   // of the shard
	window int          // tasks that may be in flight at an agent
}

// deferredControl is a request that waits.
type deferredControl struct {
	ControlMail
	plan *core.UnreadablePlan // for this; nil: until what is unread has been read
}

// planRef is a plan with its agents' slots in one partition.
type planRef struct {
	plan *core.Plan
	stepsOf
	pauses planPauses
	counts *typeCounts
	steps  []stepCounts
}

// known is the plan; nil: there is none that this node can read.
func (r *planRef) known() *core.Plan {
	if r == nil {
		return nil
	}
	return r.plan
}

// newPartition is one that was taken over, of a shard with these agents and wakes.
func newPartition(st core.PartitionState, cfg *Config, book *agentBook, wakes *wakeHeap) *partition {
	return &partition{
		id: st.Partition, epoch: st.Epoch, last: st.LastCommit, recorded: st.LastCommit, takeover: st, positions: positionsOf(&st),
		saved: core.PartitionWrite{
			Partition: st.Partition, Epoch: st.Epoch, Cursor: st.Cursor, ControlCursor: st.ControlCursor,
			CursorStored: st.CursorStored, ControlStored: st.ControlStored,
			NextNumber: st.NextNumber, NextEnd: st.NextEnd, Told: st.Told,
		},
		nextNumber: max(st.NextNumber, 1),
		outbox:     outbox{nextEnd: max(st.NextEnd, 1), published: publishedEnds{through: st.Told, ahead: map[int64]bool{}}},
		inFlight:   inFlight{tasks: map[int64]*entry{}, ids: map[string]*entry{}, memory: cfg.Memory, admission: cfg.Admission, wakes: wakes},
		agentSlots: agentSlots{slots: map[string]*agentSlot{}, book: book, window: cfg.AgentWindow},
	}
}

// evidence is what is known of the partition's commits.
func (p *partition) evidence(at core.Instant) core.Evidence {
	return core.Evidence{Partition: p.id, Epoch: p.epoch, Commit: p.last, At: at, Rewound: p.rewound}
}

// asOf is the partition's row as this owner left it.
func (p *partition) asOf() core.AsOf {
	return core.AsOf{Partition: p.id, Epoch: p.epoch, Commit: p.last}
}

// write is the partition's own part of a batch.
func (p *partition) write() core.PartitionWrite {
	return core.PartitionWrite{
		Partition: p.id, Epoch: p.epoch, Cursor: p.cursor, ControlCursor: p.control,
		NextNumber: p.nextNumber, NextEnd: p.nextEnd, Told: p.published.through,
		CursorStored: p.cursorStored, ControlStored: p.controlStored,
	}
}

// number is one that no task of the partition has had.
func (p *partition) number() int64 {
	p.nextNumber++
	return p.nextNumber - 1
}

// changes makes the partition's row a part of the round's batch.
func (p *partition) changes() { p.dirty = true }

// settled takes that back: the round is over.
func (p *partition) settled() { p.dirty = false }

// leaveUncounted notes that a stored task is left alone: what it has out is not counted.
func (p *partition) leaveUncounted(saved *core.Saved) {
	over := saved.Row.Deadline
	for i := range saved.Journal {
		over = max(over, saved.Journal[i].Due)
	}
	p.uncounted = max(p.uncounted, over)
}

// agentSlot is what a partition knows of one agent.
type agentSlot struct {
	name    string
	calls   *agentCalls // what the shard knows of it
	load    int         // tasks in flight there
	waiting []*entry    // tasks that wait for the agent, which is not there
	unable  []*entry    // tasks at a step that it does not serve, and perhaps some that have gone on
	blocked []*entry    // tasks in flight of which a branch waits for room there
	order   *parkedAt   // of what is parked: see finish.go; nil: nothing is

	gaveUp int64 // the revision of the agent's breaker for which tasks that cannot wait were given up
}

// stepsOf are what every task of a plan has in common about its steps.
type stepsOf struct {
	slots  []*agentSlot  // of each step its agent's; nil: it has none
	agents []*agentCalls // likewise; nil: it has none
	rides  []uint64      // of each step the steps whose results ride on its command
	branch bool          // some step may be ready while another is out
	asks   bool          // it has expressions
}

// at has a bit for each step whose agent is one slot.
func (s *stepsOf) at(slot *agentSlot) (steps uint64) {
	for i, is := range s.slots {
		if is == slot {
			steps |= 1 << uint(i)
		}
	}
	return steps
}

func (p *partition) stepsOf(plan *core.Plan) stepsOf {
	n := len(plan.Steps)
	of := stepsOf{slots: make([]*agentSlot, n), agents: make([]*agentCalls, n), rides: make([]uint64, n)}
	of.asks = plan.Result != ""
	for i := range plan.Steps {
		step := &plan.Steps[i]
		if step.Kind == core.CallStep {
			of.slots[i] = p.slot(step.Agent)
			of.agents[i] = of.slots[i].calls
			of.agents[i].longest = max(of.agents[i].longest, step.CompleteBy+plan.Grace)
		}
		of.rides[i] = plan.Carried(i)
		of.asks = of.asks || step.When != "" || step.Input != "" || step.Until != "" || step.Elements != ""
		of.branch = of.branch || plan.Ancestors(i) != 1<<uint(i)-1 || step.Kind != core.CallStep
	}
	return of
}

func (p *agentSlots) slot(agent string) *agentSlot {
	slot := p.slots[agent]
	if slot == nil {
		slot = &agentSlot{name: agent, calls: p.book.of(agent)}
		p.slots[agent], p.agents = slot, append(p.agents, slot)
	}
	return slot
}

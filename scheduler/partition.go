package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// partition is a shard's memory of one partition that it owns. It never survives the ownership: a partition
// taken over again begins anew from the store.
type partition struct {
	id    int
	epoch int64
	// last is the id of the newest commit of the partition, or of the takeover.
	last int64
	// recorded is the newest commit that is recorded outside the database.
	recorded int64
	// rewound is the newest epoch in which a stream was read again from its beginning, as in core.Evidence.
	rewound int64
	// takeover is the row as the takeover made it, with what it found. A former owner may know of later
	// commits; see evidenceBook.doubt.
	takeover core.PartitionState
	// readUntil is a position in the task stream after the database went back: submissions up to it may have
	// run before and are being read again. 0: there are none.
	readUntil uint64

	// uncounted is until when tasks that this node cannot load may have commands out, which no limit counts.
	uncounted core.Instant

	// deferred are requests that cannot be applied yet; see deferred.go.
	deferred []deferredControl

	positions
	outbox
	// saved is the partition's row as last committed, to tell whether a cursor has moved since.
	saved core.PartitionWrite

	nextNumber int64
	inFlight
	agentSlots
	// ownedAt is when the store last confirmed that the partition is ours.
	ownedAt core.Instant
	// dirty is whether this round's batch must write the partition's row.
	dirty bool
	// noMore is set while the partition is being let go: what is parked is left to the next owner.
	noMore bool
	// lost is set when a successor fenced the partition or an error stopped it; what the round has for it is
	// passed over.
	lost bool
}

// unproven reports whether the store has to confirm that the partition is ours before a retry leaves: it did so too long ago, or by
// a clock that was set back since.
func (p *partition) unproven(now core.Instant) bool { return p.ownedAt.Elapsed(now, core.OwnedFor) }

// agentSlots are the agents as one partition sees them.
type agentSlots struct {
	slots map[string]*agentSlot
	// agents is the same as slots, in the order in which the partition met them.
	agents []*agentSlot
	// full counts the agents whose window is full, and those for which as many wait as may.
	full int
	book *agentBook // of the shard
	// window is how many tasks of the partition may be in flight at one agent.
	window int
}

// deferredControl is a request that waits until it can be applied.
type deferredControl struct {
	ControlMail
	// plan is the plan that it waits for; nil: it waits until what is unread has been read.
	plan *core.UnreadablePlan
}

// planRef is a plan together with what a partition needs for each task of it: the slots of its steps' agents,
// its cached pauses, its counters.
type planRef struct {
	plan *core.Plan
	stepsOf
	pauses planPauses
	counts *typeCounts
	steps  []stepCounts
}

// known returns the plan, or nil if there is none that this node can read. It may be called on nil.
func (r *planRef) known() *core.Plan {
	if r == nil {
		return nil
	}
	return r.plan
}

// newPartition makes the memory of a partition that was just taken over.
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
		inFlight:   inFlight{tasks: map[int64]*entry{}, ids: map[string]*entry{}, listed: map[int64]bool{}, most: cfg.InFlight, memory: cfg.Memory, admission: cfg.Admission, wakes: wakes},
		agentSlots: agentSlots{slots: map[string]*agentSlot{}, book: book, window: cfg.AgentWindow},
	}
}

// evidence returns what is recorded outside the database about the partition's newest commit.
func (p *partition) evidence(at core.Instant) core.Evidence {
	return core.Evidence{Partition: p.id, Epoch: p.epoch, Commit: p.last, At: at, Rewound: p.rewound}
}

// asOf names the partition's row as this owner left it. A read that passes it fails if the row has changed
// since.
func (p *partition) asOf() core.AsOf {
	return core.AsOf{Partition: p.id, Epoch: p.epoch, Commit: p.last}
}

// write returns the partition's row for a batch.
func (p *partition) write() core.PartitionWrite {
	return core.PartitionWrite{
		Partition: p.id, Epoch: p.epoch, Cursor: p.cursor, ControlCursor: p.control,
		NextNumber: p.nextNumber, NextEnd: p.nextEnd, Told: p.published.through,
		CursorStored: p.cursorStored, ControlStored: p.controlStored,
	}
}

// number returns a task number that was never given out in the partition.
func (p *partition) number() int64 {
	p.nextNumber++
	return p.nextNumber - 1
}

// changes makes the round's batch write the partition's row.
func (p *partition) changes() { p.dirty = true }

// settled undoes changes at the end of the round.
func (p *partition) settled() { p.dirty = false }

// leaveUncounted takes note that a stored task cannot be loaded here: its commands may be out without being
// counted, until its deadline or its last due time.
func (p *partition) leaveUncounted(saved *core.Saved) {
	over := saved.Row.Deadline
	for i := range saved.Journal {
		over = max(over, saved.Journal[i].Due)
	}
	p.uncounted = max(p.uncounted, over)
}

// agentSlot is what a partition knows of one agent.
type agentSlot struct {
	name  string
	calls *agentCalls // what the shard knows of it
	// load counts the partition's tasks in flight at the agent, away those of them whose do waits because it is not there. The
	// window bounds both: see room.
	load, away int
	// waiting are tasks whose command no agent took, because none is there. They keep retrying, and all at
	// once when the agent answers anything.
	waiting []*entry
	// unable are tasks at a step that the agent says it does not serve. Some may have moved on: they are
	// removed lazily.
	unable []*entry
	// blocked are tasks in flight, another step of which waits for room here.
	blocked []*entry
	// order holds the tasks parked here in the order in which they are claimed; nil: none was ever parked.
	order *parkedAt

	// gaveUp is the revision of the breaker for which hopeless tasks were already taken up; see giveUpParked.
	gaveUp int64
}

// stepsOf is what all tasks of a plan in one partition have in common. Slices have an element for each step.
type stepsOf struct {
	// slots and agents are nil for a step that calls no agent.
	slots  []*agentSlot
	agents []*agentCalls
	// rides is, for each step, the set of steps whose results its command carries.
	rides []core.StepSet
	// here is, for each step, the set of steps whose agent has the same slot.
	here []core.StepSet
	// branch is whether a step can be ready while another is out.
	branch bool
	// asks is whether the plan has expressions.
	asks bool
}

// at returns the set of steps whose agent has this slot.
func (s *stepsOf) at(slot *agentSlot) core.StepSet {
	if i := slices.Index(s.slots, slot); i >= 0 {
		return s.here[i]
	}
	return core.StepSet{}
}

// stepsOf computes stepsOf for a plan, and raises each agent's longest.
func (p *partition) stepsOf(plan *core.Plan) stepsOf {
	n := len(plan.Steps)
	of := stepsOf{slots: make([]*agentSlot, n), agents: make([]*agentCalls, n), here: make([]core.StepSet, n)}
	before := plan.AllAncestors()
	of.rides = plan.AllCarried(before)
	bySlot := map[*agentSlot]*core.StepBuilder{}
	of.asks = plan.Result != ""
	for i := range plan.Steps {
		step := &plan.Steps[i]
		if step.Kind == core.CallStep {
			of.slots[i] = p.slot(step.Agent)
			of.agents[i] = of.slots[i].calls
			if bySlot[of.slots[i]] == nil {
				bySlot[of.slots[i]] = &core.StepBuilder{}
			}
			bySlot[of.slots[i]].Add(i)
			of.agents[i].longest = max(of.agents[i].longest, step.CompleteBy+plan.Grace)
		}
		of.asks = of.asks || step.When != "" || step.Input != "" || step.Until != "" || step.Elements != ""
		of.branch = of.branch || before[i].Len() != i || step.Kind != core.CallStep
	}
	sets := map[*agentSlot]core.StepSet{}
	for slot, steps := range bySlot {
		sets[slot] = steps.Set()
	}
	for i, slot := range of.slots {
		of.here[i] = sets[slot]
	}
	return of
}

// slot returns the slot of an agent, and makes it if the partition has not met the agent yet.
func (p *agentSlots) slot(agent string) *agentSlot {
	slot := p.slots[agent]
	if slot == nil {
		slot = &agentSlot{name: agent, calls: p.book.of(agent)}
		p.slots[agent], p.agents = slot, append(p.agents, slot)
	}
	return slot
}

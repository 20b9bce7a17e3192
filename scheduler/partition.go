package scheduler

import (
	"duly.dev/duly/internal/core"
)

// partition is what a shard knows of one partition it owns.
type partition struct {
	id    int
	epoch int64
	last  int64 // the id of the newest commit, or of the takeover
	// recorded is the newest commit that is recorded outside the database.
	recorded int64
	rewound  int64               // as in core.Evidence
	taken    core.PartitionState // what the takeover found and made of it; a former owner may know of more
	// readUntil: submissions up to here that may have run are read again.
	readUntil uint64

	uncounted core.Instant // until when tasks that are left alone may have commands out

	held []heldControl // requests that wait: see held.go

	// Positions fully dealt with: every task of the message committed and every
	// status it led to published. The next commit carries them.
	cursor, control uint64
	// Positions applied by the cycle that is on; they become the cursors when the
	// cycle has published.
	nextCursor, nextControl uint64
	// When the streams took the messages at all of these.
	cursorStored, controlStored, nextStored, nextControlStored core.Instant

	reading core.Reading // what the doors are told: Read and Begun are of what is applied

	saved core.PartitionWrite // as last committed

	nextNumber int64
	nextEnd    int64
	published  publishedEnds
	retell     retelling

	tasks     map[int64]*entry  // tasks in flight, by number
	ids       map[string]*entry // the same, by id
	slots     map[string]*agentSlot
	agents    []*agentSlot // the same, as they came
	full      int          // agents at their limit
	book      *agentBook   // of the shard
	window    int          // tasks that may be in flight at an agent
	endings   int          // of the round, to be published
	acks      []func()     // of the cycle that is on
	ownedAt   core.Instant // when the store last said that it is ours
	dirty     bool         // has a write in the cycle that is on
	memory    *Memory      // may be nil
	admission *Admission   // may be nil
	wakes     *wakeHeap    // of the shard; nil: it is forgotten
	bytes     int64        // of it, held by the tasks in flight
	noMore    bool         // what is parked is left to the next owner
	lost      bool         // fenced: dropped at the end of the cycle
	idle      []*entry     // tasks whose last child in flight was let go in this round
}

// entry is one task in flight.
type entry struct {
	task   *core.Task
	plan   *planRef
	round  inRound
	at     uint64 // steps that count in their agents' windows
	leased int64  // Config.Leased when its newest event was applied
	marks
	waits  uint64       // steps among those that wait for an agent
	lacks  uint64       // steps among those that their agent does not serve
	blocks uint64       // steps among those that wait for room while others of the task are out
	bytes  int64        // as last weighed
	wakes  core.Instant // when it is woken next; 0: it is not
	wakeAt int          // where it is among those that are woken
	// issues are the commits of the rows under whose numbers its commands leave: nearly
	// always of one.
	issue  issue
	issues []issue // further ones

	parent *entry // of a child: in flight as long as it is
	kids   int    // children in flight
	ends   int    // of its ends that its parent is still to hear of
	fans   []*fan // of steps that have children, while they are out
	swept  int64  // row by which the parent's step is undone that counts it as open
}

// issue is the commit that wrote a journal row.
type issue struct{ row, commit int64 }

// issued notes that rows of the task from first on were written by a commit, and forgets
// rows under whose numbers nothing leaves any more.
func (e *entry) issued(first, commit int64) {
	was, more := e.issue, e.issues
	e.issue, e.issues = issue{}, nil
	for i := range e.task.Steps {
		s := &e.task.Steps[i]
		e.note(s.Out, first, commit, was, more)
		if s.Awaits != s.Out {
			e.note(s.Awaits, first, commit, was, more)
		}
		do, undo := s.Silent()
		e.note(do, first, commit, was, more)
		e.note(undo, first, commit, was, more)
	}
}

func (e *entry) note(row, first, commit int64, was issue, more []issue) {
	if row == 0 {
		return
	}
	is := issue{row, commit}
	if row < first {
		is.commit = commitOf(row, was, more)
	}
	if e.issue.row == 0 {
		e.issue = is
	} else {
		e.issues = append(e.issues, is)
	}
}

// commitOf is the commit that wrote a row under whose number a command leaves; 0: none
// has yet, so no agent can answer it.
func (e *entry) commitOf(row int64) int64 { return commitOf(row, e.issue, e.issues) }

func commitOf(row int64, one issue, more []issue) int64 {
	if one.row == row {
		return one.commit
	}
	for _, is := range more {
		if is.row == row {
			return is.commit
		}
	}
	return 0
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

func newPartition(st core.PartitionState) *partition {
	return &partition{
		id: st.Partition, epoch: st.Epoch, last: st.LastCommit, taken: st,
		cursor: st.Cursor, control: st.ControlCursor, nextCursor: st.Cursor, nextControl: st.ControlCursor,
		cursorStored: st.CursorStored, controlStored: st.ControlStored, nextStored: st.CursorStored, nextControlStored: st.ControlStored,
		saved: core.PartitionWrite{
			Partition: st.Partition, Epoch: st.Epoch, Cursor: st.Cursor, ControlCursor: st.ControlCursor,
			CursorStored: st.CursorStored, ControlStored: st.ControlStored,
			NextNumber: st.NextNumber, NextEnd: st.NextEnd, Told: st.Told,
		},
		nextNumber: max(st.NextNumber, 1), nextEnd: max(st.NextEnd, 1),
		published: publishedEnds{through: st.Told, ahead: map[int64]bool{}},
		tasks:     map[int64]*entry{}, ids: map[string]*entry{}, slots: map[string]*agentSlot{},
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

func (p *partition) slot(agent string) *agentSlot {
	slot := p.slots[agent]
	if slot == nil {
		slot = &agentSlot{name: agent, calls: p.book.of(agent)}
		p.slots[agent], p.agents = slot, append(p.agents, slot)
	}
	return slot
}

func (p *partition) add(e *entry) {
	before := len(p.tasks)
	p.tasks[e.task.Number] = e
	p.admission.hold(len(p.tasks) - before)
	p.ids[e.task.ID] = e
	e.adoptedBy(p)
	p.weigh(e)
}

// drop forgets a task in flight.
func (p *partition) drop(e *entry) {
	p.occupy(e, 0)
	e.letGo(p)
	p.unwake(e)
	p.orphan(e)
	p.unload(e)
	before := len(p.tasks)
	delete(p.tasks, e.task.Number)
	p.admission.hold(len(p.tasks) - before)
	if p.ids[e.task.ID] == e {
		delete(p.ids, e.task.ID)
	}
}

// publishedEnds is which endings are stored in the event stream: those of every end number up to publishedThrough, and
// some beyond it.
type publishedEnds struct {
	through int64 // publishedThrough
	ahead   map[int64]bool
}

func (m *publishedEnds) add(end int64) {
	if end <= m.through {
		return
	}
	m.ahead[end] = true
	for m.ahead[m.through+1] {
		m.through++
		delete(m.ahead, m.through)
	}
}

// skip counts the end numbers from first up to but not including end as published.
func (m *publishedEnds) skip(first, end int64) {
	for n := first; n < end; n++ {
		m.add(n)
	}
}

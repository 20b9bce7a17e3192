package scheduler

import (
	"cmp"
	"math"
	"slices"

	"duly.dev/duly/internal/core"
)

// entry is a task in flight: one that is in memory. At the end of a round a task that nothing pins is dropped
// and lives in the store alone.
type entry struct {
	task  *core.Task
	plan  *planRef
	round inRound
	// at is the set of steps that count in their agents' windows, away those of them that wait for an agent that is not there.
	at, away core.StepSet
	// leased is Config.Leased as of the newest event. If it has changed, another owner may have sent commands
	// meanwhile.
	leased int64
	marks
	// waits, lacks and blocks are the steps for which the task is listed in agentSlot.waiting, unable and
	// blocked.
	waits  core.StepSet
	lacks  core.StepSet
	blocks core.StepSet
	// bytes is what the task is charged with in Memory.
	bytes int64
	// wakes is when the task is to be woken; 0: never. wakeAt is its index in the heap of those.
	wakes  core.Instant
	wakeAt int
	// issue and issues say which commit wrote a row, for the rows under whose numbers commands leave or late
	// answers come. A reply is genuine only if it knows the commit. Nearly always one commit is enough; issues are in the
	// order of their rows.
	issue  issue
	issues []issue

	// parent is a child's parent, which stays in flight as long as the child.
	parent *entry
	// kids counts the task's children in flight.
	kids int
	// ends counts the task's own ends that its parent has not been told yet.
	ends int
	// fans hold the children of the steps that are out.
	fans []*fan
	// kept is whether the task is in the list of its partition of that name.
	kept bool
	// swept is the row by which the parent's step is being undone, if this child counts as open there.
	swept int64
}

// inFlight are the tasks of a partition that are in memory.
type inFlight struct {
	tasks map[int64]*entry  // by number
	ids   map[string]*entry // by id
	// idle are tasks whose last child in flight was dropped in this round: they may be dropped as well.
	idle []*entry
	// later are tasks that may have to bear children, in the order in which they are looked at, and listed the same: they
	// wait for room, or a takeover found them, of which so many are left. They need not be in memory.
	later  []int64
	listed map[int64]bool
	found  int
	// kept are tasks that rest, or did, in the order in which they came to; most is Config.InFlight.
	kept []*entry
	most int
	// memory, admission and wakes are nil once the partition is forgotten, so that nothing is counted twice.
	memory    *Memory
	admission *Admission
	// bytes is what these tasks are charged with in memory.
	bytes int64
	wakes *wakeHeap
}

// inRound is what the current round has done with a task, so that it can be taken back. It is zero between
// rounds.
type inRound struct {
	// write is 1 + the index of the task's write in the batch; 0: it has none.
	write int
	// stored is whether that write is committed.
	stored bool
	// refused counts how often a row of the task was refused in this round. Effects and calls remember the
	// count as of their making: those that are older than the last refusal are passed over.
	refused int
	// places are the steps for which the round took places of limits, spent those for which it spent a call
	// of a rate.
	places core.StepSet
	spent  core.StepSet
	// whole is whether the task was seen in the store with its journal in this round.
	whole bool
	// asked is the first request of the round about a child that had ended.
	asked *request
}

// request identifies a request about an ended child, made when the child was at row seq.
type request struct {
	id          string
	seq         int64
	kind        core.EventKind
	actor, what string
}

// issue names the commit that wrote a journal row.
type issue struct{ row, commit int64 }

// replayed fills the entry with a task as replayed from the store. commits are those of its journal's rows.
func (e *entry) replayed(t *core.Task, commits []int64) {
	e.task, e.issue, e.issues = t, issue{}, nil
	for row, commit := range commits { // rows are numbered from 1, without a gap
		e.issues = append(e.issues, issue{int64(row + 1), commit})
	}
	e.issued(math.MaxInt64, 0)
}

// becomes replaces the task: the database refused the row of the one before.
func (e *entry) becomes(t *core.Task) { e.task = t }

// issued takes note that the task's rows from first on were written by a commit. It forgets rows under whose
// numbers nothing can be answered any more.
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
	slices.SortFunc(e.issues, func(a, b issue) int { return cmp.Compare(a.row, b.row) })
}

// note keeps the commit of one row: the given one if the row is new, else what was known before.
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

// commitOf returns the commit that wrote a row under whose number a command leaves. 0: none has yet, so no
// agent can have the command.
func (e *entry) commitOf(row int64) int64 { return commitOf(row, e.issue, e.issues) }

func commitOf(row int64, one issue, more []issue) int64 {
	if one.row == row {
		return one.commit
	}
	at, is := slices.BinarySearchFunc(more, row, func(a issue, row int64) int { return cmp.Compare(a.row, row) })
	if !is {
		return 0
	}
	return more[at].commit
}

// wakeHeap holds the tasks in flight that have a due time, the earliest first.
type wakeHeap = indexed[*entry]

func (e *entry) putAt(place int) { e.wakeAt = place }

// before orders equal times by partition and number, so that a simulated run can be repeated exactly.
func (e *entry) before(o *entry) bool {
	return cmp.Or(cmp.Compare(e.wakes, o.wakes), cmp.Compare(e.task.Partition, o.task.Partition), cmp.Compare(e.task.Number, o.task.Number)) < 0
}

// marks is what a task has taken at the gates of its agents.
type marks struct {
	// places are the steps that have a place of their agent's limit.
	places core.StepSet
	// trial are the steps whose command is out as part of a breaker's trial.
	trial core.StepSet
	// noPlace are the steps that wait for their agent and gave their place up meanwhile: a retry has to ask
	// for one.
	noPlace core.StepSet
	// pausedRetries are the steps whose last retry was stopped by a pause: they have no place in the window.
	pausedRetries core.StepSet
	// heardAll are the steps whose newest do this owner sent with the step's whole time, and since which no
	// reply can have been lost. Only these can be counted against the agent when they are silent.
	heardAll core.StepSet
	// keys names the limit's key for each step; nil: not computed yet.
	keys []string
}

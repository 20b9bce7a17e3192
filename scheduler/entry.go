package scheduler

import (
	"cmp"
	"math"

	"duly.dev/duly/internal/core"
)

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

// inFlight are the tasks of a partition that are in memory.
type inFlight struct {
	tasks     map[int64]*entry  // by number
	ids       map[string]*entry // by id
	idle      []*entry          // those whose last child in flight was let go in this round
	memory    *Memory           // may be nil
	admission *Admission        // may be nil
	bytes     int64             // of memory, that they hold
	wakes     *wakeHeap         // of the shard; nil: the partition is forgotten
}

// inRound is what the round at hand has done with a task; zero between rounds.
type inRound struct {
	write   int      // 1 + index of its write in the batch; 0: none
	stored  bool     // that is
	refused int      // rows of it that were: effects and calls from before the last of them are passed over
	places  uint64   // places of limits, by step
	spent   uint64   // calls of rates, likewise
	whole   bool     // it was seen in the store with its journal
	asked   *request // about it as an ended child: the first
}

// request is one about an ended child at one of its rows.
type request struct {
	id          string
	seq         int64
	kind        core.EventKind
	actor, what string
}

// issue is the commit that wrote a journal row.
type issue struct{ row, commit int64 }

// replayed makes the entry that of a task as it is stored, whose rows were written by these commits.
func (e *entry) replayed(t *core.Task, commits []int64) {
	e.task, e.issue, e.issues = t, issue{}, nil
	for row, commit := range commits { // rows are numbered from 1, without a gap
		e.issues = append(e.issues, issue{int64(row + 1), commit})
	}
	e.issued(math.MaxInt64, 0)
}

// becomes puts another task in the place of one whose row is refused.
func (e *entry) becomes(t *core.Task) { e.task = t }

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

// wakeHeap are the tasks in flight that are to be woken, the earliest first.
type wakeHeap = indexed[*entry]

func (e *entry) putAt(place int) { e.wakeAt = place }

// before: of equals the order is that of their numbers, so that one run is as the other.
func (e *entry) before(o *entry) bool {
	return cmp.Or(cmp.Compare(e.wakes, o.wakes), cmp.Compare(e.task.Partition, o.task.Partition), cmp.Compare(e.task.Number, o.task.Number)) < 0
}

// marks are what a task has at its agents' gates, by step.
type marks struct {
	places        uint64   // places
	trial         uint64   // commands that are out as a trial
	noPlace       uint64   // those that wait for their agents without a place: a retry asks for one
	pausedRetries uint64   // those of which a pause held the last retry: without a place in the window
	heardAll      uint64   // the newest do was sent by this owner, with its step's whole time, and the owner has heard all answers since
	keys          []string // of limits; nil: they are not known
}

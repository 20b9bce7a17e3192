package core

// What a store says of the children of one step.

// Siblings are the children of one step of a task, in one run of the task: a resubmission has others.
type Siblings struct {
	Parent int64 // the task's number
	Step   int
	// First is the id of the first of them: children of an earlier round have lower numbers than it. Without it there
	// are none.
	First string
	// Since is when the present attempt of the step began: children that were undone before are left from an earlier one.
	Since Instant
}

// ChildRow is one child as its row has it.
type ChildRow struct {
	Number int64
	Index  int
	State  State
	Ended  Instant // 0: it has not
}

// ChildCounts are the children of a step by what became of them.
type ChildCounts struct {
	Born    int // 1 + the highest index
	Running int // not ended
	Done    int // processed
	Undone  int
	Error   int // in error
	Left    int // undone before the present attempt of the step
}

// Add counts n children in a state, of which the last has that index. left says that they are left from an earlier attempt of
// the step, if they are undone.
func (c *ChildCounts) Add(s State, n, last int, left bool) {
	c.Born = max(c.Born, last+1)
	switch s {
	case StateProcessed:
		c.Done += n
	case StateUndone:
		if left {
			c.Left += n
			return
		}
		c.Undone += n
	case StateError:
		c.Error += n
	case StatePending, StateProcessing, StateUndoing:
		c.Running += n
	}
}

// Fresh is a task as its row names it.
type Fresh struct {
	Number int64
	Type   string
}

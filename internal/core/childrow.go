package core

// What a store says of the children of one step.

// Siblings are the children of one step of a task in one of its rounds.
type Siblings struct {
	Parent int64 // the task's number
	Step   int
	// First is the id of the first of them: children of an earlier round have lower numbers than it. Without it there
	// are none.
	First string
}

// ChildRow is one child as its row has it.
type ChildRow struct {
	Number int64
	Index  int
	State  State
}

// ChildCounts are the children of a step by what became of them.
type ChildCounts struct {
	Born    int // 1 + the highest index
	Running int // not ended
	Done    int // processed
	Undone  int
	Error   int // in error
}

// Add counts n children in a state, of which the last has that index.
func (c *ChildCounts) Add(s State, n, last int) {
	c.Born = max(c.Born, last+1)
	switch s {
	case StateProcessed:
		c.Done += n
	case StateUndone:
		c.Undone += n
	case StateError:
		c.Error += n
	case StatePending, StateProcessing, StateUndoing:
		c.Running += n
	}
}

package drone

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The states in which a task has ended, as Duly words them.
const (
	StateProcessed = "processed"
	StateUndone    = "undone"
	StateError     = "error"
)

// Outcome is what Duly's own store says of a task.
type Outcome struct {
	State string // processed, undone, error, or one that is not an end
	// Done lists the steps with `done` rows in the journal. It may leave out
	// those with a single row, and be nil when there are no others.
	Done []DoneRows
}

// DoneRows is how many `done` rows a step has in one round. More than one means
// that one command was counted twice.
type DoneRows struct {
	Step  string
	Round int
	Rows  int
}

// Outcomes looks up what became of a task; false means that the store does not
// know it.
type Outcomes interface {
	Outcome(id string) (Outcome, bool)
}

// OutcomeMap is Outcomes from memory.
type OutcomeMap map[string]Outcome

// OutcomesOf is what a store says that knows the state of each task by its id.
func OutcomesOf(states map[string]string) OutcomeMap {
	m := make(OutcomeMap, len(states))
	for id, state := range states {
		m[id] = Outcome{State: state}
	}
	return m
}

// AddDone notes the `done` rows of one step of a task.
func (m OutcomeMap) AddDone(task string, rows DoneRows) {
	o := m[task]
	o.Done = append(o.Done, rows)
	m[task] = o
}

// Outcome looks the task up.
func (m OutcomeMap) Outcome(id string) (Outcome, bool) {
	o, ok := m[id]
	return o, ok
}

// Finding says which promise was broken.
type Finding string

// The findings.
const (
	FoundLost     Finding = "lost"
	FoundDoubled  Finding = "doubled"
	FoundHalfDone Finding = "half_done"
)

// Example is one broken promise, to look at.
type Example struct {
	Task    string  `json:"task"`
	Finding Finding `json:"finding"`
	Why     string  `json:"why"`
}

// Report is what the checker found. Each task counts at most once per finding.
type Report struct {
	Accepted  int `json:"accepted"`  // positively answered ids
	Processed int `json:"processed"` // of the accepted
	Undone    int `json:"undone"`
	Error     int `json:"error"`

	Lost     int `json:"lost"`      // accepted, but not ended
	Doubled  int `json:"doubled"`   // more than one effect where there may be one
	HalfDone int `json:"half_done"` // processed without everything, or undone with something

	Examples []Example `json:"examples,omitempty"` // up to ExamplesMax per finding
	examples map[Finding]int
}

// ExamplesMax bounds the examples of each finding.
const ExamplesMax = 10

// Clean reports whether every accepted task ended and no promise was broken.
func (r *Report) Clean() bool { return r.Lost == 0 && r.Doubled == 0 && r.HalfDone == 0 }

// Check compares the books of all five services with Duly's store. accepted are
// the ids that were answered positively. Tasks that were stored but whose
// answer was lost are held to the same promises, less that of being found.
// Nothing may run while it counts: see Services.Settle.
func (b *Books) Check(accepted []string, outcomes Outcomes) Report {
	return b.check(accepted, &checker{books: b, outcomes: outcomes})
}

// CheckBeside is Check without what a comparison of Duly's journal with these books finds by the keys of effects: see
// ByAgent, and Report.Ghost, which adds that. It finds what is lost, what was done or took effect where it must not, and
// whose checks or drones are wrong.
func (b *Books) CheckBeside(accepted []string, outcomes Outcomes) Report {
	return b.check(accepted, &checker{books: b, outcomes: outcomes, beside: true})
}

func (b *Books) check(accepted []string, c *checker) Report {
	known := make(map[string]struct{}, len(accepted))
	for _, id := range accepted {
		if _, twice := known[id]; twice {
			continue
		}
		known[id] = struct{}{}
		c.accepted(id)
	}
	for i := range b.shards {
		sh := &b.shards[i]
		sh.mu.Lock()
		for r := range sh.tasks() {
			id := string(sh.task(r))
			if _, ok := known[id]; !ok {
				c.unaccepted(id, rounds{sh, r})
			}
		}
		sh.mu.Unlock()
	}
	// The books are maps: without an order the examples would differ by the run.
	slices.SortFunc(c.report.Examples, func(a, b Example) int {
		return cmp.Or(strings.Compare(string(a.Finding), string(b.Finding)), strings.Compare(a.Task, b.Task))
	})
	return c.report
}

type checker struct {
	books    *Books
	outcomes Outcomes
	beside   bool // which effects stand is looked at elsewhere
	report   Report
}

func (c *checker) accepted(id string) {
	c.report.Accepted++
	o, ok := c.outcomes.Outcome(id)
	switch {
	case !ok:
		c.report.found(FoundLost, id, "accepted, but the store does not know it")
	case o.State == StateProcessed:
		c.report.Processed++
	case o.State == StateUndone:
		c.report.Undone++
	case o.State == StateError:
		c.report.Error++
	default:
		c.report.found(FoundLost, id, fmt.Sprintf("accepted, but still %q", o.State))
	}
	hash := hashText(id)
	sh := c.books.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c.effects(id, rounds{sh, sh.find(hash, id)}, o)
}

// unaccepted is a task whose submitter never got a positive answer.
func (c *checker) unaccepted(id string, r rounds) {
	o, ok := c.outcomes.Outcome(id)
	if ok {
		c.effects(id, r, o)
		return
	}
	for step := range Step(StepCount) {
		if r.sum(step).Live > 0 && !c.beside {
			c.report.found(FoundHalfDone, id, fmt.Sprintf("the store does not know it, but the effect of step %s stands", step))
			break
		}
	}
	c.effects(id, r, o)
}

// effects holds a task's books against its state. The shard is held.
func (c *checker) effects(id string, r rounds, o Outcome) {
	if why := c.doubled(r, o); why != "" {
		c.report.found(FoundDoubled, id, why)
	}
	why := ""
	switch o.State {
	case StateProcessed:
		why = c.missing(r)
	case StateUndone:
		why = c.remaining(r)
	}
	if why != "" {
		c.report.found(FoundHalfDone, id, why)
	}
}

// doubled: more than one live effect for a step, an effect made after its
// tombstone, or two `done` rows for one step and round.
func (c *checker) doubled(r rounds, o Outcome) string {
	for step := range Step(StepCount) {
		e := r.sum(step)
		switch {
		case e.Live > 1 && !c.beside:
			return fmt.Sprintf("step %s has %d live effects", step, e.Live)
		case e.Ghosts > 0:
			return fmt.Sprintf("step %s took effect after its tombstone", step)
		}
	}
	for _, d := range o.Done {
		if d.Rows > 1 {
			return fmt.Sprintf("step %s has %d done rows in round %d", d.Step, d.Rows, d.Round)
		}
	}
	return ""
}

// missing: a processed task needs three live effects and two successful checks,
// and its delivery flies with its own drone.
func (c *checker) missing(r rounds) string {
	for step := range Step(StepCount) {
		e := r.sum(step)
		if step.Undoable() && e.Live == 0 && !c.beside {
			return fmt.Sprintf("processed, but step %s has no live effect", step)
		}
		if e.Applied == 0 {
			return fmt.Sprintf("processed, but step %s never succeeded", step)
		}
	}
	drone, delivery := r.sum(StepDrone).Serial, r.sum(StepDelivery).Serial
	if drone != delivery {
		return fmt.Sprintf("processed, but the delivery was given %s and its own is %s", droneID(delivery), droneID(drone))
	}
	return ""
}

// remaining: an undone task leaves nothing behind.
func (c *checker) remaining(r rounds) string {
	for step := range Step(StepCount) {
		if r.sum(step).Live > 0 && !c.beside {
			return fmt.Sprintf("undone, but the effect of step %s stands", step)
		}
	}
	return ""
}

func (r *Report) found(f Finding, id, why string) {
	switch f {
	case FoundLost:
		r.Lost++
	case FoundDoubled:
		r.Doubled++
	case FoundHalfDone:
		r.HalfDone++
	}
	if r.examples == nil {
		r.examples = make(map[Finding]int)
	}
	if r.examples[f]++; r.examples[f] <= ExamplesMax {
		r.Examples = append(r.Examples, Example{Task: id, Finding: f, Why: why})
	}
}

package scheduler

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// Kinds counts what only some kinds of step do, and late answers. Rows and children are counted when they are committed;
// signals, starts and expressions when they are decided, so these may count some that were taken back.
type Kinds struct {
	Waits              int64                // that ended because their instant came
	Signals            int64                // that were taken
	SignalsRefused     int64                // that changed nothing
	Born               int64                // children
	Skipped            int64                // steps whose condition is false
	Expressions        int64                // that failed
	LateDos, LateUndos int64                // answers that came after their complete-by and are kept
	Starts             int64                // of tasks that were to begin later
	Probes             [probeOutcomes]int64 // questions about silent dos by what came of them
	ChildEnds          [len(ends)]int64
}

// The outcomes of questions about silent dos; see [Kinds.Probes].
const (
	ProbeDone = iota
	ProbeAbsent
	ProbeUnknown
	probeOutcomes
)

// ChildrenEnded returns how many children ended in each state.
func (k *Kinds) ChildrenEnded() map[core.State]int64 {
	m := make(map[core.State]int64, len(ends))
	for i, state := range ends {
		m[state] = k.ChildEnds[i]
	}
	return m
}

func (k *Kinds) add(o *Kinds) {
	k.Waits += o.Waits
	k.Signals += o.Signals
	k.SignalsRefused += o.SignalsRefused
	k.Born += o.Born
	k.Skipped += o.Skipped
	k.Expressions += o.Expressions
	k.LateDos += o.LateDos
	k.LateUndos += o.LateUndos
	k.Starts += o.Starts
	for i, n := range o.Probes {
		k.Probes[i] += n
	}
	for i, n := range o.ChildEnds {
		k.ChildEnds[i] += n
	}
}

// countRows counts what the rows of a committed batch tell.
func (k *Kinds) countRows(writes []core.TaskWrite, in *owned) {
	for i := range writes {
		w := &writes[i]
		e := in.stored(w)
		if e == nil {
			continue
		}
		if w.Birth && w.Task.Parent != 0 {
			k.Born++
		}
		for j := range w.Records {
			k.count(&w.Records[j], e.plan)
			e.plan.count(&w.Records[j], w.Task)
		}
	}
}

func (k *Kinds) count(r *core.Record, of *planRef) {
	switch r.Kind {
	case core.KindDone: // a wait has no result
		if len(r.Result) == 0 && of != nil && r.Step >= 0 && of.plan.Steps[r.Step].Kind == core.WaitStep {
			k.Waits++
		}
	case core.KindSkipped:
		k.Skipped++
	case core.KindLate:
		k.LateDos++
	case core.KindUndoLate:
		k.LateUndos++
	case core.KindProbed:
		switch r.Code {
		case 0:
			k.Probes[ProbeDone]++
		case core.CodeAbsent:
			k.Probes[ProbeAbsent]++
		default:
			k.Probes[ProbeUnknown]++
		}
	}
}

// count counts one committed row of a task of the plan. The counters are looked up once for a plan, so that a
// row costs no map access.
func (r *planRef) count(row *core.Record, t *core.Task) {
	if r == nil || r.counts == nil {
		return
	}
	if row.MissesDeadline() {
		r.counts.missed.Add(1)
	}
	if row.Step < 0 || row.Step >= len(r.steps) || r.steps[row.Step].took == nil {
		return
	}
	s := &r.steps[row.Step]
	switch row.Kind {
	case core.KindDone:
		if row.Step < len(t.Steps) && t.Steps[row.Step].Used != 0 {
			s.took.add(row.At.Sub(t.Steps[row.Step].Used))
		}
	case core.KindFailed, core.KindUndoFailed:
		s.agent.failed.Add(1)
	case core.KindRefused, core.KindUndoRefused:
		s.agent.refused.Add(1)
	case core.KindOverdue, core.KindUndoOverdue:
		s.agent.overdue.Add(1)
	case core.KindUndoGaveUp:
		if row.Code != 0 {
			s.agent.failed.Add(1)
		} else {
			s.agent.overdue.Add(1)
		}
	}
}

// countChild counts the task's end, if it is a child.
func (k *Kinds) countChild(t *core.Task) {
	if i := slices.Index(ends[:], t.State); i >= 0 && t.Parent != 0 {
		k.ChildEnds[i]++
	}
}

// countSignal counts a signal; why is the error if it changed nothing, and is returned.
func (k *Kinds) countSignal(why error) error {
	if why != nil {
		k.SignalsRefused++
	} else {
		k.Signals++
	}
	return why
}

// countStart counts that a task with a start-at has begun.
func (k *Kinds) countStart(rows []core.Record) {
	if slices.ContainsFunc(rows, func(r core.Record) bool { return r.Kind == core.KindStarted }) {
		k.Starts++
	}
}

// counting is a core.Asker that counts the expressions that fail. A shard has one, for the event at hand.
type counting struct {
	core.Asker
	failed *int64
}

// bind makes it evaluate the expressions of a task; nil: its plan has none.
func (c *counting) bind(all Expressions, e *entry) core.Asker {
	if e.plan == nil || !e.plan.asks || all == nil {
		return nil
	}
	c.Asker = all.Bind(e.plan.plan, e.task)
	return c
}

func (c *counting) note(err error) {
	if err != nil {
		*c.failed++
	}
}

// When implements core.Asker.
func (c *counting) When(step int) (bool, error) {
	yes, err := c.Asker.When(step)
	c.note(err)
	return yes, err
}

// Input implements core.Asker.
func (c *counting) Input(step int) ([]byte, error) {
	input, err := c.Asker.Input(step)
	c.note(err)
	return input, err
}

// Until implements core.Asker.
func (c *counting) Until(step int) (core.Instant, error) {
	at, err := c.Asker.Until(step)
	c.note(err)
	return at, err
}

// Elements implements core.Asker.
func (c *counting) Elements(step int) ([]byte, int, error) {
	list, n, err := c.Asker.Elements(step)
	c.note(err)
	return list, n, err
}

// Result implements core.Asker.
func (c *counting) Result() ([]byte, error) {
	result, err := c.Asker.Result()
	c.note(err)
	return result, err
}

package core

// OpenSignals are the steps of a task that wait for their signals. A task's row has them, so that what waits for an answer
// is counted and found without its journal.
type OpenSignals struct {
	Steps StepSet // empty: none does
	Since Instant // since when the first of them
	Due   Instant // the first complete-by of them
}

// OpenSignals are those of the task now.
func (t *Task) OpenSignals() (open OpenSignals) {
	var steps StepBuilder
	for i := range t.Steps {
		if s := &t.Steps[i]; s.kind == kindSignal && s.Out != 0 {
			steps.Add(i)
			open.Since = earlier(open.Since, s.Used)
			open.Due = earlier(open.Due, s.Due)
		}
	}
	open.Steps = steps.Set()
	return open
}

// Equal reports whether two tasks wait for the same signals.
func (o OpenSignals) Equal(p OpenSignals) bool {
	return o.Since == p.Since && o.Due == p.Due && o.Steps.Equal(p.Steps)
}

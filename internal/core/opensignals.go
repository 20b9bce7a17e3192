package core

// OpenSignals are the steps of a task that wait for their signals. A task's row has them, so that what waits for an answer
// is counted and found without its journal.
type OpenSignals struct {
	Steps uint64  // bit i: step i waits; 0: none does
	Since Instant // since when the first of them
	Due   Instant // the first complete-by of them
}

// OpenSignals are those of the task now.
func (t *Task) OpenSignals() (open OpenSignals) {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.kind == kindSignal && s.Out != 0 {
			open.Steps |= 1 << uint(i)
			open.Since = earlier(open.Since, s.Used)
			open.Due = earlier(open.Due, s.Due)
		}
	}
	return open
}

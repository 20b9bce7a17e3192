package scheduler

import "duly.dev/duly/internal/core"

// Telling takes what one commit wrote, for those who watch just now. It must not block, and keeps nothing of what it is
// given.
type Telling interface {
	// Tell is about one task. plan may be nil.
	Tell(plan *core.Plan, w *core.TaskWrite)
	// End comes after the last of them.
	End()
}

// tell hands over what was committed while someone watches.
func (s *Shard) tell() {
	if s.cfg.Watch == nil {
		return
	}
	if to := s.cfg.Watch(); to != nil {
		s.tellTo(to)
	}
}

// tellTo hands over each write of the commit.
func (s *Shard) tellTo(to Telling) {
	for i := range s.cycle.batch.Writes {
		w := &s.cycle.batch.Writes[i]
		n := len(w.Records)
		_, e := s.inFlight(w.Task.Partition, w.Task.Number) // none: the commit left it out
		switch {
		case n == 0, e == nil, e.task.Seq != w.Records[n-1].Seq: // the last: the database refused the row, and the task is in error
		case e.plan == nil:
			to.Tell(nil, w)
		default:
			to.Tell(e.plan.plan, w)
		}
	}
	to.End()
}

package scheduler

import (
	"cmp"
	"time"

	"duly.dev/duly/internal/core"
)

// waitedLeast is how long a submission must have waited in the task stream to be refused for having too little time left.
// A shorter wait may be a difference of clocks; and one that has too little time without a wait was submitted that way.
const waitedLeast = 2 * time.Second

// hasNoTime reports whether a submission, as it is taken from the stream, can no longer be done in time, or
// has waited longer than its plan lets it. It then ends without a step: that costs a third of beginning and
// undoing it.
func (s *Shard) hasNoTime(m *TaskMail, sub *core.Submission, ref *planRef) bool {
	if ref == nil || !ref.plan.Admission.Refuses() {
		return false
	}
	fromTurn := sub.CompleteBy == 0 && ref.plan.QueueFor > 0
	if fromTurn && ref.plan.MissesTurn(max(cmp.Or(sub.At, m.At), sub.StartAt), m.At) {
		return true
	}
	if s.cfg.Needs == nil {
		return false
	}
	now := s.cycle.now
	from := max(now, sub.StartAt)                                         // it does not begin before its start-at
	unseen := ref.plan.Admission == core.AdmissionRefuse && sub.Unchecked // ingest has not checked its time
	if !unseen && (fromTurn || from > now || now.Sub(m.Stored) < waitedLeast) {
		return false
	}
	by, came := sub.CompleteBy, m.Stored
	switch {
	case fromTurn: // the wait for its turn does not count
		by, came = from.Add(ref.plan.CompleteBy), from
	case by == 0:
		by = max(cmp.Or(sub.At, now), sub.StartAt).Add(ref.plan.CompleteBy)
	}
	left := by.Sub(from) - ref.plan.UndoReserve
	whole := left + max(0, from.Sub(came)) // what was left when it came
	needs := ref.plan.Admission.Needs(s.cfg.Needs(ref.plan), whole)
	return left < time.Duration(core.Weather*float64(needs))
}

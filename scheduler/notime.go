package scheduler

import (
	"cmp"
	"time"

	"duly.dev/duly/internal/core"
)

// waitedLeast is how long a submission has waited in its task stream whose time is looked at when it comes up: less may be
// what clocks differ by, and one that has too little time without having waited was given too little.
const waitedLeast = 2 * time.Second

// hasNoTime reports whether a submission comes up with too little time to be done, or has waited too long for its turn: it
// ends without anything of it having begun, which costs a third of what begins and is undone.
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
	from := max(now, sub.StartAt)                                         // nothing of it begins before
	unseen := ref.plan.Admission == core.AdmissionRefuse && sub.Unchecked // no door has looked at its time
	if !unseen && (fromTurn || from > now || now.Sub(m.Stored) < waitedLeast) {
		return false
	}
	by, came := sub.CompleteBy, m.Stored
	switch {
	case fromTurn: // the wait has taken nothing of its time
		by, came = from.Add(ref.plan.CompleteBy), from
	case by == 0:
		by = max(cmp.Or(sub.At, now), sub.StartAt).Add(ref.plan.CompleteBy)
	}
	left := by.Sub(from) - ref.plan.UndoReserve
	whole := left + max(0, from.Sub(came)) // what was left when it came
	needs := ref.plan.Admission.Needs(s.cfg.Needs(ref.plan), whole)
	return left < time.Duration(core.Weather*float64(needs))
}

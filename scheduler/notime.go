package scheduler

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
)

// hasNoTime refuses a submission that came by the stream endpoint and has less time than tasks of its plan take, where
// the plan says so. One that is a task already is not refused: its submitter asks again, or the stream is read again.
func (s *Shard) hasNoTime(ctx context.Context, p *partition, sub *core.Submission, ref *planRef) (bool, error) {
	if !sub.Unchecked || ref == nil || ref.plan.Admission != core.AdmissionRefuse || s.cfg.Admit == nil {
		return false, nil
	}
	from := max(s.cycle.now, sub.StartAt) // nothing of it begins before
	left := max(sub.At, sub.StartAt).Add(ref.plan.CompleteBy).Sub(from)
	switch {
	case sub.CompleteBy != 0:
		left = sub.CompleteBy.Sub(from)
	case sub.At == 0:
		left = ref.plan.CompleteBy
	}
	why := s.cfg.Admit(ref.plan, left)
	if why == "" {
		return false, nil
	}
	saved, err := s.store.LoadIDs(ctx, p.asOf(), []string{sub.ID})
	if err != nil {
		return false, fmt.Errorf("task %s: %w", sub.ID, err)
	}
	if len(saved) > 0 {
		return false, nil
	}
	s.cycle.refusal(p, sub, 422, why)
	return true, nil
}

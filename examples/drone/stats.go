package drone

import (
	"context"
	"errors"
	"sync/atomic"
)

// Stats is how often a service was called, and how that went.
type Stats struct {
	Calls       int64 `json:"calls"`       // do
	Undos       int64 `json:"undos"`       // undo
	Refused     int64 `json:"refused"`     // account suspended
	Unavailable int64 `json:"unavailable"` // transient errors
	Silent      int64 `json:"silent"`      // given up at the complete-by: hung or died
	Gone        int64 `json:"gone"`        // do on a tombstone
	TooEarly    int64 `json:"too_early"`   // key in progress
	Late        int64 `json:"late"`        // effects made after their call was given up
}

// counts are the atomics behind Stats.
type counts struct {
	calls, undos, refused, unavailable, silent, gone, tooEarly, lates atomic.Int64
}

func (n *counts) note(err error, undo bool) {
	if undo {
		n.undos.Add(1)
	} else {
		n.calls.Add(1)
	}
	if err != nil {
		n.failed(err)
	}
}

func (n *counts) failed(err error) {
	switch {
	case errors.Is(err, ErrSuspended):
		n.refused.Add(1)
	case errors.Is(err, ErrUnavailable):
		n.unavailable.Add(1)
	case errors.Is(err, ErrGone):
		n.gone.Add(1)
	case errors.Is(err, ErrTooEarly):
		n.tooEarly.Add(1)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		n.silent.Add(1)
	}
}

func (n *counts) late(err error) {
	if err != nil {
		n.failed(err)
		return
	}
	n.lates.Add(1)
}

// Stats reads the counters.
func (s *Service) Stats() Stats {
	n := &s.counts
	return Stats{
		Calls: n.calls.Load(), Undos: n.undos.Load(), Refused: n.refused.Load(), Unavailable: n.unavailable.Load(),
		Silent: n.silent.Load(), Gone: n.gone.Load(), TooEarly: n.tooEarly.Load(), Late: n.lates.Load(),
	}
}

// codeOf is the code of a failure: 0 for none, 408 for silence, 400 for a bad key.
func codeOf(err error) int {
	if err == nil {
		return 0 // nearly always, and then nothing is allocated
	}
	var failed *ServiceError
	switch {
	case errors.As(err, &failed):
		return failed.Code
	case errors.Is(err, ErrKey):
		return 400
	}
	return codeSilent
}

// codeSilent is the code of no answer at all.
const codeSilent = 408

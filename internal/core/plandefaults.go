package core

import (
	"cmp"
	"time"
)

// WithDefaults returns a copy in which every zero field has its default. A field that a step of its kind has no use for
// stays zero.
func (p Plan) WithDefaults() Plan {
	steps := make([]Step, len(p.Steps))
	copy(steps, p.Steps)
	p.Steps = steps
	p.CompleteBy = cmp.Or(p.CompleteBy, DefaultTaskCompleteBy)
	p.Grace = cmp.Or(p.Grace, DefaultGrace)
	p.InputMax = cmp.Or(p.InputMax, InputBytesMax)
	for i := range steps {
		steps[i].fillDefaults(p.CompleteBy)
	}
	return p
}

// fillDefaults fills in what is silent; task is how long the whole task may take. A default
// never contradicts what was said.
func (s *Step) fillDefaults(task time.Duration) {
	s.OnExhausted = cmp.Or(s.OnExhausted, PolicyUndo)
	s.Pause = cmp.Or(s.Pause, defaultPause)
	switch s.Kind {
	case WaitStep:
		s.AttemptsMax = cmp.Or(s.AttemptsMax, 1)
		return
	case SignalStep:
		s.CompleteBy = cmp.Or(s.CompleteBy, task)
		s.AttemptsMax = cmp.Or(s.AttemptsMax, 1)
		s.fillBackoff()
		s.ResultMax = cmp.Or(s.ResultMax, ResultBytesMax)
		return
	case TaskStep, EachStep:
		s.Undoable = true // each step of the child says for itself whether it is
		s.CompleteBy = cmp.Or(s.CompleteBy, task)
		s.UndoCompleteBy = cmp.Or(s.UndoCompleteBy, s.UndoPatience, defaultUndoPatience)
		s.AttemptsMax = cmp.Or(s.AttemptsMax, 1)
	default:
		if s.CompleteBy == 0 {
			s.UndoCompleteBy = cmp.Or(s.UndoCompleteBy, DefaultStepCompleteBy) // an undo may take longer than the task
			s.CompleteBy = min(DefaultStepCompleteBy, task)
		}
		s.UndoCompleteBy = cmp.Or(s.UndoCompleteBy, s.CompleteBy)
		s.AttemptsMax = cmp.Or(s.AttemptsMax, DefaultAttemptsMax)
		s.KeyLasts = cmp.Or(s.KeyLasts, DefaultKeyLasts)
	}
	s.fillBackoff()
	s.ResultMax = cmp.Or(s.ResultMax, ResultBytesMax)
	if s.Kind == EachStep {
		s.ElementsMax = cmp.Or(s.ElementsMax, defaultElementsMax)
		s.Parallel = cmp.Or(s.Parallel, defaultParallel)
	}
}

func (s *Step) fillBackoff() {
	switch {
	case s.Backoff == 0 && s.BackoffCap > 0:
		s.Backoff = min(defaultBackoff, s.BackoffCap)
	case s.BackoffCap == 0 && s.Backoff > 0:
		s.BackoffCap = max(defaultBackoffCap, s.Backoff)
	}
	s.Backoff = cmp.Or(s.Backoff, defaultBackoff)
	s.BackoffCap = cmp.Or(s.BackoffCap, defaultBackoffCap)
}

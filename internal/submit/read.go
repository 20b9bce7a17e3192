package submit

import (
	"errors"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// What is wrong with a submission, besides core's errors about its times.
var (
	ErrHeader  = errors.New("header refused")
	ErrType    = errors.New("type refused")
	ErrID      = errors.New("id refused")
	ErrSize    = errors.New("input too large")
	ErrJSON    = errors.New("input is not JSON")
	ErrText    = errors.New("input is not text that every reader can hold")
	ErrVersion = errors.New("plan version refused")
	ErrReplyTo = errors.New("reply-to refused")
	ErrLabels  = errors.New("labels refused")
)

// Error is why a form can never become a task.
type Error struct {
	Cause error // one of this package's, or of core's about times
	text  string
}

// Error names field, value and limit.
func (e *Error) Error() string { return e.text }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Code is HTTP's.
func (e *Error) Code() int {
	if errors.Is(e.Cause, ErrSize) {
		return 413
	}
	return 400
}

// Read makes of a form what the task stream holds; the cheap checks come first. now is the time of the submission, from
// which durations count, less Ago. checkReplyTo refuses a subject; nil: none is looked at. Error: an *Error; type and id
// are there all the same.
func (f *Form) Read(now core.Instant, checkReplyTo func(subject string) error) (s core.Submission, bad *Error) {
	s = core.Submission{Type: f.Type, ID: f.ID, Input: f.Input, ReplyTo: f.ReplyTo, Trace: core.CleanTrace(f.Trace), At: now}
	said := now.Add(-f.Ago)
	if err := core.CheckName("type", f.Type); err != nil {
		return s, refuse(ErrType, "%v", err)
	}
	if err := core.CheckName("id", f.ID); err != nil {
		return s, refuse(ErrID, "%v", err)
	}
	if len(f.Input) > core.InputBytesMax {
		return s, refuse(ErrSize, "input of type %s has %d bytes, the limit is %d", core.QuoteShort(f.Type), len(f.Input), core.InputBytesMax)
	}
	var err error
	if s.CompleteBy, err = core.ParseCompleteBy(f.CompleteBy, said, now); err != nil {
		return s, &Error{errors.Unwrap(err), err.Error()}
	}
	if s.StartAt, err = core.ParseStartAt(f.StartAt, said, now, s.CompleteBy); err != nil {
		return s, &Error{errors.Unwrap(err), err.Error()}
	}
	if s.PlanVersion, err = core.ParsePlanVersion(f.Version); err != nil {
		return s, refuse(ErrVersion, "%v", err)
	}
	if s.ReplyTo != "" && checkReplyTo != nil {
		if err := checkReplyTo(s.ReplyTo); err != nil {
			return s, refuse(ErrReplyTo, "reply-to %s: %v", core.QuoteShort(f.ReplyTo), err)
		}
	}
	if s.Labels, err = core.ParseLabels(f.Labels); err != nil {
		return s, refuse(ErrLabels, "%v", err)
	}
	if err := quickjson.Check("input", f.Input); err != nil {
		cause := ErrJSON
		if _, ok := errors.AsType[*quickjson.TextError](err); ok {
			cause = ErrText
		}
		return s, refuse(cause, "%v", err)
	}
	return s, nil
}

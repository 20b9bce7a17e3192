package core

import (
	"errors"
	"fmt"
	"time"
)

// ErrCompleteBy is wrapped by every error of [ParseCompleteBy], beside one of the three
// that say what is wrong.
var (
	ErrCompleteBy     = errors.New("complete-by refused")
	ErrCompleteByForm = fmt.Errorf("%w: neither form", ErrCompleteBy)
	ErrCompleteByPast = fmt.Errorf("%w: not after now", ErrCompleteBy)
	ErrCompleteByFar  = fmt.Errorf("%w: too far", ErrCompleteBy)
)

// errStartAt is wrapped by every error of [ParseStartAt], beside one of the three that say
// what is wrong.
var (
	errStartAt      = errors.New("start-at refused")
	ErrStartAtForm  = fmt.Errorf("%w: neither form", errStartAt)
	ErrStartAtFar   = fmt.Errorf("%w: too far", errStartAt)
	ErrStartAtAfter = fmt.Errorf("%w: not before complete-by", errStartAt)
)

// TimeLayout is RFC 3339 with microseconds, the resolution of an Instant.
const TimeLayout = "2006-01-02T15:04:05.000000Z07:00"

// timeError is a refused complete-by or start-at: what is wrong, and a text with the value
// and the limit.
type timeError struct {
	cause error
	text  string
}

// Error names the value and the limit.
func (e *timeError) Error() string { return e.text }

// Unwrap gives the cause.
func (e *timeError) Unwrap() error { return e.cause }

// ParseCompleteBy reads a submission's complete-by wherever one is handed in: RFC 3339, or
// a duration from when it was said. Empty is 0: the plan's own time counts. Errors wrap
// ErrCompleteByForm (neither), ErrCompleteByPast (not after now) or ErrCompleteByFar
// (further off than DurationMax), and all of them ErrCompleteBy.
func ParseCompleteBy(value string, said, now Instant) (Instant, error) {
	if value == "" {
		return 0, nil
	}
	var by Instant
	if d, err := time.ParseDuration(value); err == nil {
		by = said.Add(min(d, DurationMax+time.Hour)) // no sum overflows
	} else if t, err := time.Parse(time.RFC3339Nano, value); err == nil {
		by = InstantOf(t)
	} else {
		return 0, &timeError{ErrCompleteByForm, fmt.Sprintf("complete-by %s is neither RFC 3339 nor a duration such as 30s", QuoteShort(value))}
	}
	switch {
	case by <= now:
		return 0, &timeError{ErrCompleteByPast, fmt.Sprintf("complete-by %s has passed: now is %s", QuoteShort(value), now.Time().Format(TimeLayout))}
	case by > now.Add(DurationMax):
		return 0, &timeError{ErrCompleteByFar, fmt.Sprintf("complete-by %s is more than %v from now, %s", QuoteShort(value), DurationMax, now.Time().Format(TimeLayout))}
	}
	return by, nil
}

// ParseStartAt reads a submission's start-at wherever one is handed in: RFC 3339, or a delay
// from when it was said. Empty is 0, and so is what has passed: at once. completeBy is the submission's,
// as ParseCompleteBy gave it; it must be later. Errors wrap ErrStartAtForm (neither),
// ErrStartAtFar (further off than DurationMax) or ErrStartAtAfter (not before completeBy),
// and all of them errStartAt.
func ParseStartAt(value string, said, now, completeBy Instant) (Instant, error) {
	if value == "" {
		return 0, nil
	}
	var at Instant
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		at = said.Add(min(d, DurationMax+time.Hour)) // no sum overflows
	} else if t, err := time.Parse(time.RFC3339Nano, value); err == nil {
		at = InstantOf(t)
	} else {
		return 0, &timeError{ErrStartAtForm, fmt.Sprintf("start-at %s is neither RFC 3339 nor a delay such as 2h", QuoteShort(value))}
	}
	switch {
	case at <= now:
		return 0, nil
	case at > now.Add(DurationMax):
		return 0, &timeError{ErrStartAtFar, fmt.Sprintf("start-at %s is more than %v from now, %s", QuoteShort(value), DurationMax, now.Time().Format(TimeLayout))}
	case completeBy != 0 && completeBy <= at:
		return 0, &timeError{ErrStartAtAfter, fmt.Sprintf("start-at %s is %s, and complete-by %s is not after it; durations count from the submission",
			QuoteShort(value), at.Time().Format(TimeLayout), completeBy.Time().Format(TimeLayout))}
	}
	return at, nil
}

// Lengths of a W3C traceparent: version 00, and what a later one may have.
const (
	traceBytes    = 55
	traceBytesMax = 128
)

// CleanTrace returns a traceparent, or nothing where it is none:
// a trace is a help, never a reason to refuse a task. It wants the shape of W3C trace
// context: version, trace id, parent id and flags in lower-case hex, neither id all
// zero.
func CleanTrace(trace string) string {
	if len(trace) < traceBytes || len(trace) > traceBytesMax || trace[2] != '-' || trace[35] != '-' || trace[52] != '-' {
		return ""
	}
	version, id, parent, flags := trace[:2], trace[3:35], trace[36:52], trace[53:55]
	if !isHex(version) || !isHex(id) || !isHex(parent) || !isHex(flags) || version == "ff" || isZero(id) || isZero(parent) {
		return ""
	}
	if len(trace) == traceBytes {
		return trace
	}
	// A later version may have more behind a dash.
	if version == "00" || trace[traceBytes] != '-' {
		return ""
	}
	for i := traceBytes; i < len(trace); i++ {
		if !hexByte(trace[i]) && trace[i] != '-' {
			return ""
		}
	}
	return trace
}

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if !hexByte(s[i]) {
			return false
		}
	}
	return true
}

func hexByte(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func isZero(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '0' {
			return false
		}
	}
	return true
}

package ingest

import (
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Causes of refusals: Refusal.ErrCode. The numbers are part of the wire and
// never given a second meaning.
const (
	CauseTypeName       = 7001 // type outside its alphabet
	CauseTypeUnknown    = 7002 // no plan of that name
	CauseIDName         = 7003 // id outside its alphabet
	causeInputJSON      = 7004 // input is not JSON
	causeInputText      = 7005 // input holds a NUL or is not UTF-8
	CauseInputSize      = 7006 // input over its limit
	causeCompleteByForm = 7007 // neither RFC 3339 nor a duration
	causeCompleteByPast = 7008 // not after now
	causeCompleteByFar  = 7009 // beyond core.DurationMax
	causeReplyTo        = 7010 // private status subject not allowed
	causeVersionForm    = 7011 // plan version neither a number nor newest
	CauseVersionUnknown = 7012 // no plan of that name in that version
	CauseLabels         = 7013 // labels outside their alphabet or limits
	causeDeprecated     = 7014 // the version of the plan that it names is deprecated, or all are
	CauseInputSchema    = 7015 // input does not fit the input schema of its plan, or a signal's payload that of its step
	causeStartAtForm    = 7016 // neither RFC 3339 nor a delay
	causeStartAtFar     = 7017 // beyond core.DurationMax
	causeStartAtAfter   = 7018 // not before complete-by
	CauseHeader         = 7019 // a header that a submission cannot have, or given twice
	CauseFull           = 7020 // the door holds as many requests as it may
	CauseBacklog        = 7021 // the readers are too far behind
	causeUnknownMany    = 7022 // too many requests of unknown types wait for the plans
	CauseLogDown        = 7030 // not stored: the stream is out of reach
	causeLogFull        = 7031 // not stored: the stream is full
	causeOutcome        = 7032 // it may be stored or not
	CauseStopping       = 7033 // the door is closing
	CausePlans          = 7034 // the plans could not be read
	CauseUndecided      = 7035 // not stored: what was submitted a moment ago, under the id or before a request about it, is no task yet
	CauseMethod         = 7040 // HTTP: no such method here
	CauseNotFound       = 7041 // no such path, task or version
	CauseConflict       = 7042 // HTTP: the id is a task with another input
	CauseQuery          = 7043 // a query parameter, header or member of a query is wrong
	CauseStore          = 7044 // the state store or control stream did not answer
	CauseBody           = 7045 // what was sent could not be read, or a member of it is wrong

	CauseOtherType = 7046 // the id is a task of another type
	CauseState     = 7047 // the task is in a state in which the request changes nothing
	CauseNoActor   = 7048 // HTTP: the request says by no token who asks
	CauseForbidden = 7049 // HTTP: the role of who asks does not allow it
	CauseNotServed = 7050 // HTTP: this node has not the part for it

	causeNoTime = 7060 // its time is less than the plan takes

	CauseFirst = CauseTypeName // the bounds of what is given out
	CauseLast  = causeNoTime
)

// causeOf are the causes for codes of refusals that give none.
var causeOf = map[int]int{
	400: CauseBody, 401: CauseNoActor, 403: CauseForbidden, 404: CauseNotFound, 405: CauseMethod, 409: CauseState,
	413: CauseBody, 415: CauseBody, 422: CauseBody, 428: CauseState, 429: CauseFull,
}

// CauseOf is the cause for a code of a refusal that gives none. Any 4xx that is not listed is the request's
// own fault, so that no client sends it again as it is.
func CauseOf(code int) int {
	if cause, ok := causeOf[code]; ok {
		return cause
	}
	if code < 500 {
		return CauseQuery
	}
	return CauseStore
}

// Hints of when to try again, for what is not known better.
const (
	RetryFull    = 250 * time.Millisecond // there was no room
	retryBacklog = 2 * time.Second
	RetryLog     = time.Second // a stream or the state store did not answer
	retryUnknown = 100 * time.Millisecond
)

// descriptionBytesMax bounds a description, whatever it repeats of the input.
const descriptionBytesMax = 1024

// Refuse makes a refusal: a code as HTTP's, the cause, and a description that names field,
// value and limit.
func Refuse(code, cause int, format string, args ...any) *Refusal {
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	return &Refusal{Code: code, ErrCode: cause, Description: core.ShortText(text, descriptionBytesMax)}
}

// After sets when the same request may succeed. It returns r.
func (r *Refusal) After(retry time.Duration) *Refusal {
	r.Retry = retry
	return r
}

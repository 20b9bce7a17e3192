package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// SubmitHeaders makes the header of a submission; nil when nothing is set.
// completeBy is RFC 3339 or a duration, planVersion a number or core.NewestVersion.
func SubmitHeaders(completeBy, replyTo, trace, planVersion string) Header {
	var h Header
	for _, m := range [...]struct{ name, value string }{{HeaderCompleteBy, completeBy}, {HeaderReplyTo, replyTo}, {HeaderTrace, trace}, {HeaderVersion, planVersion}} {
		if m.value == "" {
			continue
		}
		if h == nil {
			h = make(Header, 4)
		}
		h[m.name] = []string{m.value}
	}
	return h
}

// FormatTime writes an instant as the wire does: RFC 3339 with microseconds.
func FormatTime(at core.Instant) string { return at.Time().Format(timeLayout) }

// SubmitAnswer is the answer of the fast door to an accepted submission. It has
// the form of a JetStream PubAck.
type SubmitAnswer struct {
	Stream    string
	Seq       uint64
	Task      string
	Partition int

	// Of a request about a task: its state when it was looked at, and what will be.
	State, Outcome string
}

// AppendAccepted appends the positive answer of the fast door.
func AppendAccepted(dst []byte, a *SubmitAnswer) []byte {
	dst = append(dst, `{"stream":`...)
	dst = appendString(dst, a.Stream)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, a.Seq, 10)
	dst = appendMember(dst, "task", a.Task)
	dst = appendNumber(dst, "partition", int64(a.Partition))
	if a.State != "" {
		dst = appendMember(dst, "state", a.State)
	}
	if a.Outcome != "" {
		dst = appendMember(dst, "outcome", a.Outcome)
	}
	return append(dst, '}')
}

// RefusedError is the negative answer of the fast door.
type RefusedError struct {
	APIError
	Task  string
	Retry time.Duration // when to try again; 0: no hint
}

// Retryable reports whether the same submission can succeed later.
func (e *RefusedError) Retryable() bool { return e.Code == 429 || e.Code >= 500 }

// AppendRefused appends the negative answer of the fast door.
func AppendRefused(dst []byte, e *RefusedError) []byte {
	dst = append(dst, `{"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	// JetStream clients read err_code as 16 bits without sign.
	dst = appendNumber(dst, "err_code", int64(uint16(e.ErrCode)))
	dst = appendMember(dst, "description", e.Description)
	dst = append(dst, '}')
	dst = appendMember(dst, "task", e.Task)
	if e.Retry > 0 {
		dst = appendNumber(dst, "retry_ms", e.Retry.Milliseconds())
	}
	return append(dst, '}')
}

// DecodeSubmitAnswer reads the answer of the fast door. The error of a refused
// submission is a *RefusedError; others wrap ErrUndecodable.
func DecodeSubmitAnswer(data []byte) (SubmitAnswer, error) {
	var j struct {
		Stream    string    `json:"stream"`
		Seq       uint64    `json:"seq"`
		Task      string    `json:"task"`
		Partition int       `json:"partition"`
		State     string    `json:"state"`
		Outcome   string    `json:"outcome"`
		Error     *APIError `json:"error"`
		Retry     int64     `json:"retry_ms"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return SubmitAnswer{}, fmt.Errorf("%w: answer to a submission: %w", ErrUndecodable, err)
	}
	if j.Error != nil {
		return SubmitAnswer{}, &RefusedError{APIError: *j.Error, Task: j.Task, Retry: planform.Milliseconds(j.Retry)}
	}
	if j.Stream == "" || j.Seq == 0 {
		return SubmitAnswer{}, fmt.Errorf("%w: answer to a submission: %s", ErrUndecodable, Quote(data))
	}
	return SubmitAnswer{Stream: j.Stream, Seq: j.Seq, Task: j.Task, Partition: j.Partition, State: j.State, Outcome: j.Outcome}, nil
}

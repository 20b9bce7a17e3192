package wire

import (
	"encoding/json"
	"fmt"
	"strconv"

	"duly.dev/duly/internal/planform"
)

// SubmitAnswer is the answer to a request that was accepted: a submission at the request
// endpoint, or a request about a task. It has the form of a JetStream PubAck, so that a
// JetStream client can submit by publishing.
type SubmitAnswer struct {
	Stream    string
	Seq       uint64
	Task      string
	Partition int

	// Of a request about a task: its state when the request came, and what will follow.
	State, Outcome string
	Warning        string // of a submission: that it has less time than tasks of its plan take; empty: none
}

// AppendAccepted appends the JSON of a positive answer.
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
	if a.Warning != "" {
		dst = appendMember(dst, "warning", a.Warning)
	}
	return append(dst, '}')
}

// AppendRefused appends the JSON of a negative answer.
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

// DecodeSubmitAnswer reads a positive or a negative answer. The error of a refused
// request is a *RefusedError; others wrap ErrUndecodable.
func DecodeSubmitAnswer(data []byte) (SubmitAnswer, error) {
	var j struct {
		Stream    string    `json:"stream"`
		Seq       uint64    `json:"seq"`
		Task      string    `json:"task"`
		Partition int       `json:"partition"`
		State     string    `json:"state"`
		Outcome   string    `json:"outcome"`
		Warning   string    `json:"warning"`
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
	return SubmitAnswer{Stream: j.Stream, Seq: j.Seq, Task: j.Task, Partition: j.Partition, State: j.State, Outcome: j.Outcome, Warning: j.Warning}, nil
}

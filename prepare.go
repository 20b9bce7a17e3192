package duly

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// Prepared is a submission that was checked and encoded, and is not sent: what an outbox keeps until a node takes it. See
// package dulytx, which writes it in a transaction of PostgreSQL.
type Prepared struct {
	Type  string // the plan's name
	Task  string // the task's id
	Input []byte // as it reaches the engine: JSON, encoded where there is a codec
	// Headers are those of the message that hands the task in, by name. A duration counts from when it is written down.
	Headers map[string]string
}

// Prepare makes what [Plan.Submit] would send; codec is that of [WithCodec], or nil. Errors are [ErrRefused]: a plan that
// cannot work, an id, input or option that no node would take, a deadline that has passed.
func (p *Plan[In]) Prepare(ctx context.Context, codec Codec, id string, input In, options ...SubmitOption) (Prepared, error) {
	s := p.submission("prepare", 0, id, input, options)
	if s.err != nil {
		return Prepared{}, s.err
	}
	return prepare(ctx, codec, s.Type, s.Task, s.Input, s.inputMax, s.Options)
}

// PrepareRaw is [Plan.Prepare] for callers without the plan's types: input is the JSON as it shall reach the agents.
func PrepareRaw(ctx context.Context, codec Codec, typ, id string, input []byte, options ...SubmitOption) (Prepared, error) {
	return prepare(ctx, codec, typ, id, input, core.InputBytesMax, options)
}

func prepare(ctx context.Context, codec Codec, typ, id string, input []byte, inputMax int, options []SubmitOption) (Prepared, error) {
	what := operation{"prepare", fmt.Sprintf("task %s of type %s", id, typ)}
	sent, s, err := checked(ctx, codec, typ, id, input, inputMax, options)
	if err != nil {
		return Prepared{}, what.failed(err)
	}
	if left, bounded := s.left(wall{}.Now()); bounded && left <= 0 {
		return Prepared{}, what.failed(errPassed(typ, id))
	}
	form := s.form(typ, id, sent, 0)
	if _, bad := form.Read(wall{}.Now(), nil); bad != nil {
		return Prepared{}, what.failed(&SubmitError{Type: typ, Task: id, Code: bad.Code(), Description: bad.Error()})
	}
	p := Prepared{Type: typ, Task: id, Input: sent, Headers: map[string]string{}}
	for name, values := range form.Header() {
		p.Headers[name] = values[0]
	}
	return p, nil
}

// checked is what is sent of a submission, and what its options ask for.
func checked(ctx context.Context, codec Codec, typ, id string, input []byte, inputMax int, options []SubmitOption) (sent []byte, s submission, err error) {
	if err := checkNames(typ, id); err != nil {
		return nil, s, err
	}
	if err := checkInput(typ, id, input, inputMax); err != nil {
		return nil, s, err
	}
	if sent, err = encoded(codec, typ, id, input, inputMax); err != nil {
		return nil, s, err
	}
	for _, option := range options {
		option(&s)
	}
	if err := core.CheckLabels(s.labels); err != nil {
		return nil, s, &SubmitError{Type: typ, Task: id, Code: 400, Description: err.Error()}
	}
	if s.trace == "" {
		s.trace = traceOf(ctx)
	}
	return sent, s, nil
}

func errPassed(typ, id string) error {
	return &SubmitError{Type: typ, Task: id, Code: 400, Description: "its deadline has passed"}
}

// form is the submission as a door takes it. elapsed is how long ago the call was made: a duration counts from the moment
// the door reads it.
func (s *submission) form(typ, id string, input []byte, elapsed time.Duration) submit.Form {
	f := submit.Form{Type: typ, ID: id, Input: input, ReplyTo: s.replyTo, Trace: s.trace, Labels: core.FormatLabels(s.labels)}
	switch {
	case s.bounded:
		f.CompleteBy = (s.within - elapsed).String()
	case s.timed:
		f.CompleteBy = submit.FormatTime(s.completeBy)
	}
	if s.version != 0 {
		f.Version = strconv.FormatInt(s.version, 10)
	}
	if !s.startAt.IsZero() {
		f.StartAt = submit.FormatTime(s.startAt)
	}
	return f
}

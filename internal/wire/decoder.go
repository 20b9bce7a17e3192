package wire

import (
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// Codes of refusals, as HTTP's.
const (
	CodeBadRequest = 400
	codeTooLarge   = 413
)

// The finer codes that are given or read here, of all that ingest has.
const (
	ErrCodeType   = 7001
	ErrCodeID     = 7003
	ErrCodePast   = 7008 // its complete-by has passed
	ErrCodeLabels = 7013
	ErrCodeHeader = 7019 // a header that a submission cannot have, or that is given twice
	ErrCodeTaken  = 7042 // an id that is a task already, with another input or of another type, or was cancelled
	ErrCodeQuery  = 7043
	ErrCodeStore  = 7044 // the store or the control stream did not answer
	ErrCodeBody   = 7045
	ErrCodeNoTime = 7060 // its time is less than its plan takes

	ErrCodeDeprecated = 7014 // of the plan, the version that it names, or every one
)

// ErrCodeOf is the finer code of a request that cannot be read; other: where that is not about a name or a label.
func ErrCodeOf(err error, other int) int {
	bad, name := errors.AsType[*core.NameError](err)
	switch {
	case name && bad.Field == "type":
		return ErrCodeType
	case name && bad.Field == "id":
		return ErrCodeID
	case errors.Is(err, core.ErrLabel):
		return ErrCodeLabels
	}
	return other
}

// TaskDecoder decodes the messages of the task stream.
type TaskDecoder struct {
	Partitions    int      // P; an id that belongs to another partition is refused. 0: not checked
	ReplyPrefixes []string // of reply subjects; nil: DefaultReplyPrefixes
	Names         Names    // of the installation
}

// Decoded is what one message of the task stream holds.
type Decoded struct {
	Submissions []core.Submission
	Refused     []core.Status // items that cannot be tasks, to be published as refused
}

// Decode decodes a message of the task stream: a pack of ingest or a single
// submission from the stream endpoint. at is its time in the stream, which a duration
// in its header counts from. Every error wraps ErrUndecodable.
func (d TaskDecoder) Decode(subject string, header Header, data []byte, at core.Instant) (Decoded, error) {
	if partition, ok := d.Names.ParsePack(subject); ok {
		return d.decodePack(partition, data, at)
	}
	partition, taskType, id, err := d.Names.ParseIn(subject)
	if err != nil {
		return Decoded{}, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	s, code, err := d.single(partition, taskType, id, header, data, at)
	if err != nil {
		return Decoded{Refused: []core.Status{refusal(&s, code, err, at)}}, nil
	}
	return Decoded{Submissions: []core.Submission{s}}, nil
}

func (d TaskDecoder) decodePack(partition int, data []byte, at core.Instant) (Decoded, error) {
	subs, err := decodePack(data)
	if err != nil {
		return Decoded{}, err
	}
	var out Decoded
	kept := subs[:0]
	for i := range subs {
		s := &subs[i]
		if code, err := d.checkPacked(partition, s); err != nil {
			out.Refused = append(out.Refused, refusal(s, code, err, at))
			continue
		}
		kept = append(kept, *s)
	}
	out.Submissions = kept
	return out, nil
}

// checkPacked checks what would harm other tasks. Ingest has validated the input; it is
// not parsed again.
func (d TaskDecoder) checkPacked(partition int, s *core.Submission) (code int, err error) {
	if err := core.CheckName("type", s.Type); err != nil {
		return CodeBadRequest, err
	}
	if err := core.CheckName("id", s.ID); err != nil {
		return CodeBadRequest, err
	}
	if err := d.checkPlace(partition, s.ID); err != nil {
		return CodeBadRequest, err
	}
	if len(s.Input) > core.InputBytesMax {
		return codeTooLarge, tooLarge(len(s.Input))
	}
	if err := core.CheckLabels(s.Labels); err != nil {
		return CodeBadRequest, err
	}
	if s.ReplyTo != "" {
		if err := d.Names.checkTarget(s.ReplyTo); err != nil {
			return CodeBadRequest, err
		}
	}
	return 0, nil
}

// single makes a submission of a message from the stream endpoint, which no ingest has
// checked.
func (d TaskDecoder) single(partition int, taskType, id string, header Header, data []byte, at core.Instant) (core.Submission, int, error) {
	f := submit.Form{Type: taskType, ID: id, Input: data}
	said := f.ReadHeader(header.said())
	s, bad := f.Read(at, func(subject string) error { return d.Names.CheckReplyTo(subject, d.ReplyPrefixes) })
	switch {
	case bad != nil:
		return s, bad.Code(), bad
	case said != nil:
		return s, CodeBadRequest, said
	}
	s.Unchecked = true
	return s, CodeBadRequest, d.checkPlace(partition, id)
}

func (d TaskDecoder) checkPlace(partition int, id string) error {
	if d.Partitions <= 0 {
		return nil
	}
	if want := PartitionOf(id, d.Partitions); want != partition {
		return fmt.Errorf("id %s belongs to partition %d of %d, not %d", id, want, d.Partitions, partition)
	}
	return nil
}

func refusal(s *core.Submission, code int, err error, at core.Instant) core.Status {
	return core.Status{ID: Short(s.ID), Type: Short(s.Type), Status: core.StatusRefused, Error: CutText(err.Error()), Code: code, At: at}
}

func tooLarge(n int) error {
	return fmt.Errorf("input has %d bytes, the limit is %d", n, core.InputBytesMax)
}

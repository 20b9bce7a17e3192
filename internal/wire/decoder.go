package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Codes of refusals, as HTTP's.
const (
	CodeBadRequest = 400
	CodeTooLarge   = 413
)

// ReplyToBytesMax bounds a submitter's private status subject.
const ReplyToBytesMax = 256

// DefaultReplyPrefixes are what a submitter's private status subject may begin
// with where nothing else is configured: NATS inboxes, those of users with a
// prefix of their own (_INBOX_client.…), and subjects set aside for it.
var DefaultReplyPrefixes = []string{"_INBOX.", "_INBOX_", "status."}

// ErrReplyTo is wrapped by every error of Names.CheckReplyTo.
var ErrReplyTo = errors.New("reply subject refused")

// Doors decodes what the task stream holds.
type TaskDecoder struct {
	Partitions    int      // P; an id that belongs to another partition is refused. 0: not checked
	ReplyPrefixes []string // of reply subjects; nil: DefaultReplyPrefixes
	Names         Names    // of the installation
}

// Decoded is what one message of the task stream holds.
type Decoded struct {
	Submissions []core.Submission
	Refused     []core.Status // items that cannot be tasks, to be told as refused
}

// Decode decodes a message of the task stream: a pack of ingest or a single
// submission of the plain door. at is its time in the stream, which a duration
// in its header counts from. Every error wraps ErrUndecodable.
func (d TaskDecoder) Decode(subject string, header Header, data []byte, at core.Instant) (Decoded, error) {
	if partition, ok := d.Names.ParsePack(subject); ok {
		return d.decodePack(partition, data, at)
	}
	partition, taskType, id, err := d.Names.ParseIn(subject)
	if err != nil {
		return Decoded{}, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	s, code, err := d.plain(partition, taskType, id, header, data, at)
	if err != nil {
		return Decoded{Refused: []core.Status{refusal(&s, code, err, at)}}, nil
	}
	return Decoded{Submissions: []core.Submission{s}}, nil
}

func (d TaskDecoder) decodePack(partition int, data []byte, at core.Instant) (Decoded, error) {
	subs, err := DecodePack(data)
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

// checkPacked checks what would hurt others. Ingest has validated the input; it
// is not parsed again.
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
		return CodeTooLarge, tooLarge(len(s.Input))
	}
	if s.ReplyTo != "" {
		if err := d.Names.CheckTarget(s.ReplyTo); err != nil {
			return CodeBadRequest, err
		}
	}
	return 0, nil
}

// plain makes a submission of a message of the plain door, which nobody has
// looked at before.
func (d TaskDecoder) plain(partition int, taskType, id string, header Header, data []byte, at core.Instant) (core.Submission, int, error) {
	s := core.Submission{Type: taskType, ID: id, Input: data, At: at}
	if code, err := d.checkPacked(partition, &s); err != nil {
		return s, code, err
	}
	if err := quickjson.Check("input", data); err != nil {
		return s, CodeBadRequest, err
	}
	var err error
	if s.CompleteBy, err = core.ParseCompleteBy(header.Get(HeaderCompleteBy), at); err != nil {
		return s, CodeBadRequest, err
	}
	if s.ReplyTo = header.Get(HeaderReplyTo); s.ReplyTo != "" {
		if err := d.Names.CheckReplyTo(s.ReplyTo, d.ReplyPrefixes); err != nil {
			return s, CodeBadRequest, err
		}
	}
	s.Trace = core.CleanTrace(header.Get(HeaderTrace))
	if s.PlanVersion, err = core.ParsePlanVersion(header.Get(HeaderVersion)); err != nil {
		return s, CodeBadRequest, err
	}
	s.Unchecked = s.PlanVersion != 0
	return s, 0, nil
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

// CheckReplyTo accepts a submitter's private status subject. prefixes are what
// it may begin with; nil is DefaultReplyPrefixes. Duly would publish there with
// its own rights, so its own subjects, the server's and wildcards are refused
// whatever the prefixes say. Errors wrap ErrReplyTo.
func (n Names) CheckReplyTo(subject string, prefixes []string) error {
	if err := n.CheckTarget(subject); err != nil {
		return err
	}
	if prefixes == nil {
		prefixes = DefaultReplyPrefixes
	}
	for _, p := range prefixes {
		if len(subject) > len(p) && strings.HasPrefix(subject, p) {
			return nil
		}
	}
	return fmt.Errorf("%w: %q begins with none of %q", ErrReplyTo, subject, prefixes)
}

func (n Names) CheckTarget(subject string) error {
	if len(subject) > ReplyToBytesMax {
		return fmt.Errorf("%w: %q… has %d bytes, the limit is %d", ErrReplyTo, core.CutText(subject, 64), len(subject), ReplyToBytesMax)
	}
	if subject == "" || strings.HasPrefix(subject, "$") || subject == n.get().namespace || strings.HasPrefix(subject, n.get().root) {
		return fmt.Errorf("%w: %q is reserved", ErrReplyTo, subject)
	}
	if !utf8.ValidString(subject) {
		return fmt.Errorf("%w: %q is not UTF-8", ErrReplyTo, subject)
	}
	for i := 0; i < len(subject); i++ {
		if c := subject[i]; c <= ' ' || c == 0x7f || c == '*' || c == '>' {
			return fmt.Errorf("%w: %q: character %d is %q", ErrReplyTo, subject, i+1, c)
		}
	}
	if strings.HasPrefix(subject, ".") || strings.HasSuffix(subject, ".") || strings.Contains(subject, "..") {
		return fmt.Errorf("%w: %q has an empty token", ErrReplyTo, subject)
	}
	return nil
}

// CutText cuts an error text to core.ErrorBytesMax, at a character, and makes
// it valid UTF-8.
func CutText(s string) string {
	return core.CutText(strings.ToValidUTF8(s, "\uFFFD"), core.ErrorBytesMax)
}

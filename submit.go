package duly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Receipt says that a task is stored, synced to disk, and will end.
type Receipt struct {
	Task      string
	Type      string
	Seq       uint64 // position of the submission in the task stream
	Partition int
	// Warning says that the task has less time than tasks of its plan take at present, where the plan's admission is to
	// warn; empty: it has enough, or that is not known.
	Warning string
	At      time.Time // when this call began; see Since

	hash  string // of type and input as it was sent, as core.HashInput
	plain string // the same of the input before a codec encoded it; empty: there is none
}

// SubmitOption changes one submission.
type SubmitOption func(*submission)

// submission is what the options ask for.
type submission struct {
	completeBy time.Time
	timed      bool // completeBy counts, also a zero one, which has passed
	within     time.Duration
	bounded    bool // within counts
	startAt    time.Time
	replyTo    string
	trace      string
	labels     []core.Label
	version    int64 // of the plan; 0: the newest
}

// Deadline is when the task must be done; after it the task is undone. Without
// it the plan's own time counts, from when the task is taken.
func Deadline(t time.Time) SubmitOption {
	return func(s *submission) { s.completeBy, s.timed, s.bounded = t, true, false }
}

// Within is [Deadline] as a time from this call on, and independent of the
// clocks of the two sides.
func Within(d time.Duration) SubmitOption {
	return func(s *submission) { s.timed, s.within, s.bounded = false, d, true }
}

// StartAt is when the task begins: nothing of it is done before. The plan's own time counts from then; a [Deadline] must be
// later. A time that has passed is none. A task that is cancelled before it begins leaves nothing to undo.
func StartAt(t time.Time) SubmitOption {
	return func(s *submission) { s.startAt = t }
}

// ReplyTo is a private NATS subject that is told when the task was received and
// how it ended. The server allows certain prefixes only.
func ReplyTo(subject string) SubmitOption {
	return func(s *submission) { s.replyTo = subject }
}

// Trace hands a W3C traceparent to every call the task makes. Without it that of the span in the context of the
// submission is taken, if there is one.
func Trace(traceparent string) SubmitOption {
	return func(s *submission) { s.trace = traceparent }
}

// Label gives the task a label: it can be listed, paused and limited by it, and it is shown with the task. There are up
// to 8, each with a key of its own: key is 1 to 64 of A–Z a–z 0–9 _ -, value 1 to 64 printable characters of ASCII
// without a comma. Others are refused (400). Labels are no part of what tells submissions apart: the same id with the
// same input and other labels is the same task, with the labels that it had first.
func Label(key, value string) SubmitOption {
	return func(s *submission) { s.labels = append(s.labels, core.Label{Key: key, Value: value}) }
}

// Class is the priority of a submission: see [Priority].
type Class string

// The classes of [Priority].
const (
	ClassHigh   Class = "high"
	ClassNormal Class = "normal" // that of a submission without one
	ClassLow    Class = "low"
)

// Priority is the class of the task; the last one counts. Where tasks wait for an agent the classes share it, 16 : 4 : 1
// unless nodes are told otherwise, so that each goes on; and when the system is full it refuses low submissions first
// and high ones last. Children have their parent's. It is the label duly-priority, one of the 8; another value than
// high, normal or low is refused (400).
func Priority(class Class) SubmitOption {
	return func(s *submission) {
		s.labels = slices.DeleteFunc(s.labels, func(l core.Label) bool { return l.Key == core.PriorityLabel })
		s.labels = append(s.labels, core.Label{Key: core.PriorityLabel, Value: string(class)})
	}
}

// AtVersion makes the task one of that version of its plan, which must have been
// applied; 0 is the newest. [Plan.Submit] takes the plan's own version without it.
func AtVersion(version int64) SubmitOption {
	return func(s *submission) { s.version = version }
}

// Submit hands one task in and returns once it is stored and synced. id is
// yours, unique across types, 1 to 64 of A–Z a–z 0–9 _ - (see [ID] for other
// text): the same id with the same input is the same task however often it is
// submitted, and with another input it is refused. The task runs under this plan's
// version, which must have been applied: one that is not stored is refused (404), never
// run as another.
//
// While the system is full, restarting or out of reach it tries again with a
// growing random pause until ctx ends ([ErrTimeout]): give ctx a deadline. One that is
// refused because the system is full (429) is told when to come again; until then what
// else of its type and priority c is to submit is not sent. What
// would be refused again is returned at once as a [SubmitError] that is
// [ErrRefused].
func (p *Plan[In]) Submit(ctx context.Context, c *Client, id string, input In, options ...SubmitOption) (Receipt, error) {
	s := p.submission("submit", int(c.nc.MaxPayload()), id, input, options)
	return c.submitOne(ctx, &s)
}

// SubmitRaw is [Plan.Submit] for callers without the plan's types: input is the
// JSON as it shall reach the agents.
func (c *Client) SubmitRaw(ctx context.Context, typ, id string, input []byte, options ...SubmitOption) (Receipt, error) {
	return c.submit(ctx, typ, id, input, core.InputBytesMax, options)
}

func (c *Client) submit(ctx context.Context, typ, id string, input []byte, inputMax int, options []SubmitOption) (Receipt, error) {
	what := operation{"submit", fmt.Sprintf("task %s of type %s", id, typ)}
	sent, s, err := checked(ctx, c.codec, typ, id, input, inputMax, options)
	if err != nil {
		return Receipt{}, what.failed(err)
	}
	began := c.clock.Now()
	if left, bounded := s.left(began); bounded {
		if left <= 0 {
			return Receipt{}, what.failed(errPassed(typ, id))
		}
		// A task that is taken after its own deadline would only be undone.
		var cancel context.CancelFunc
		ctx, cancel = c.clock.WithTimeout(ctx, left)
		defer cancel()
	}
	receipt := Receipt{}
	hand := func(ctx context.Context) error {
		var err error
		receipt, err = c.hand(ctx, typ, id, sent, &s, c.clock.Now().Sub(began))
		return err
	}
	place := turn{holds: &c.holds, key: holdKey{typ, core.ClassOf(s.labels)}, task: id}
	err = place.persist(ctx, c.clock, what, hand)
	if c.codec != nil && errors.Is(err, ErrTaken) {
		// The same payload may be there as another key made it.
		if stored, same := c.stored(ctx, typ, id, input); same {
			sent = stored
			err = place.persist(ctx, c.clock, what, hand)
		}
	}
	if err != nil {
		return Receipt{}, err
	}
	receipt.At, receipt.hash = began.Time(), string(core.HashInput(typ, sent))
	if c.codec != nil {
		receipt.plain = string(core.HashInput(typ, input))
	}
	return receipt, nil
}

// encoded is an input as it is sent.
func encoded(codec Codec, typ, id string, input []byte, inputMax int) ([]byte, error) {
	if codec == nil {
		return input, nil
	}
	sent, err := codec.Encode(Place{Type: typ, Task: id}, input)
	if err != nil {
		return nil, &SubmitError{Type: typ, Task: id, Code: 400, Description: err.Error()}
	}
	if len(sent) > inputMax {
		return nil, &SubmitError{Type: typ, Task: id, Code: 413, Description: fmt.Sprintf("input has %d bytes as the codec makes it (%d before), the limit is %d", len(sent), len(input), inputMax)}
	}
	return sent, nil
}

// stored is the input of a task as it is stored, if it is that one to the codec.
func (c *Client) stored(ctx context.Context, typ, id string, input []byte) ([]byte, bool) {
	ctx, cancel := c.clock.WithTimeout(ctx, tryMax)
	defer cancel()
	task, err := c.get(ctx, typ, id)
	if err != nil {
		return nil, false
	}
	is, err := decode(c.codec, Place{Type: typ, Task: id}, task.Input)
	return task.Input, err == nil && bytes.Equal(is, input)
}

// left is how long the task has from now, if the submission says so.
func (s *submission) left(now core.Instant) (d time.Duration, bounded bool) {
	if s.timed {
		return core.InstantOf(s.completeBy).Sub(now), true
	}
	return s.within, s.bounded
}

func checkInput(typ, id string, input []byte, inputMax int) error {
	if len(input) > inputMax {
		return &SubmitError{Type: typ, Task: id, Code: 413, Description: fmt.Sprintf("input has %d bytes, the limit is %d", len(input), inputMax)}
	}
	return refusedName(typ, id, quickjson.Check("input", input))
}

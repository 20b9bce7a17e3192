package chain

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"duly.dev/duly/internal/core"
)

// Bytes are bytes of any kind in a string. In JSON they are base64.
type Bytes string

// MarshalText implements [encoding.TextMarshaler].
func (b Bytes) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(b)), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Bytes) UnmarshalText(text []byte) error {
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	*b = Bytes(data)
	return err
}

// Row is a journal row, with the values that are stored. Where a column is NULL, numbers
// are 0, step and next -1, times 0 and texts empty.
type Row struct {
	Partition   int          `json:"partition"`
	Number      int64        `json:"number"`
	Seq         int64        `json:"seq"`
	At          core.Instant `json:"at"`
	Actor       string       `json:"actor"`
	Commit      int64        `json:"commit"`
	Format      int16        `json:"format"`
	Kind        string       `json:"kind"`
	State       string       `json:"state"`
	Round       int64        `json:"round"`
	Step        int64        `json:"step"`
	StepStatus  string       `json:"step_status,omitempty"`
	Attempt     int64        `json:"attempt"`
	Code        int64        `json:"code,omitempty"`
	Error       Bytes        `json:"error,omitempty"`
	Fingerprint string       `json:"fingerprint,omitempty"`
	Reason      Bytes        `json:"reason,omitempty"`
	Result      []byte       `json:"result,omitempty"`
	Quiet       core.Instant `json:"quiet,omitempty"`
	Next        int64        `json:"next"`
	NextAttempt int64        `json:"next_attempt,omitempty"`
	Undo        bool         `json:"undo,omitempty"`
	Due         core.Instant `json:"due,omitempty"`
	Deadline    core.Instant `json:"deadline,omitempty"`
	Input       []byte       `json:"input,omitempty"`
}

// Task is a row of tasks, with the values that are stored, as those of [Row]. The input is
// not among them: it is in the journal.
type Task struct {
	Partition   int          `json:"partition"`
	Number      int64        `json:"number"`
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	PlanVersion int64        `json:"plan_version"`
	InputHash   []byte       `json:"input_hash,omitempty"`
	State       string       `json:"state"`
	Seq         int64        `json:"seq"`
	Round       int64        `json:"round"`
	LockedBy    string       `json:"locked_by,omitempty"`
	WaitsFor    string       `json:"waits_for,omitempty"`
	CompleteBy  core.Instant `json:"complete_by,omitempty"`
	Deadline    core.Instant `json:"deadline,omitempty"`
	Failures    int64        `json:"failures,omitempty"`
	ReplyTo     string       `json:"reply_to,omitempty"`
	Trace       string       `json:"trace,omitempty"`
	Labels      string       `json:"labels,omitempty"`
	Origin      int64        `json:"origin"`
	CreatedAt   core.Instant `json:"created_at"`
	UpdatedAt   core.Instant `json:"updated_at"`
	EndedAt     core.Instant `json:"ended_at,omitempty"`
	EndNumber   int64        `json:"end_number,omitempty"`
	FailedStep  int64        `json:"failed_step"`
	Fingerprint string       `json:"fingerprint,omitempty"`
	Commit      int64        `json:"commit"`
	Parent      int64        `json:"parent,omitempty"`
	ParentStep  int64        `json:"parent_step,omitempty"`
	ChildIndex  int64        `json:"child_index,omitempty"`
	StartAt     core.Instant `json:"start_at,omitempty"`
}

// Hasher makes digests; its memory serves one after the other.
type Hasher struct{ buf []byte }

func (h *Hasher) begin(of byte) { h.buf = append(h.buf[:0], of) }

func (h *Hasher) ints(values ...int64) {
	for _, v := range values {
		h.buf = binary.AppendVarint(h.buf, v)
	}
}

func (h *Hasher) text(s string) {
	h.buf = append(binary.AppendUvarint(h.buf, uint64(len(s))), s...)
}

func (h *Hasher) bytes(b []byte) {
	h.buf = append(binary.AppendUvarint(h.buf, uint64(len(b))), b...)
}

func (h *Hasher) digest() Digest {
	sum := sha256.Sum256(h.buf)
	return Digest(sum[:DigestBytes])
}

// Row is the digest of a journal row.
func (h *Hasher) Row(r *Row) Digest {
	undo := int64(0)
	if r.Undo {
		undo = 1
	}
	h.begin('J')
	h.ints(int64(r.Partition), r.Number, r.Seq, int64(r.At), r.Commit, int64(r.Format), r.Round, r.Step, r.Attempt, r.Code, int64(r.Quiet), r.Next,
		r.NextAttempt, undo, int64(r.Due), int64(r.Deadline))
	h.text(r.Actor)
	h.text(r.Kind)
	h.text(r.State)
	h.text(r.StepStatus)
	h.text(string(r.Error))
	h.text(r.Fingerprint)
	h.text(string(r.Reason))
	h.bytes(r.Result)
	h.bytes(r.Input)
	return h.digest()
}

// Task is the digest of a row of tasks.
func (h *Hasher) Task(t *Task) Digest {
	h.begin('T')
	h.ints(int64(t.Partition), t.Number, t.PlanVersion, t.Seq, t.Round, int64(t.CompleteBy), int64(t.Deadline), t.Failures, t.Origin, int64(t.CreatedAt),
		int64(t.UpdatedAt), int64(t.EndedAt), t.EndNumber, t.FailedStep, t.Commit)
	h.text(t.ID)
	h.text(t.Type)
	h.text(t.State)
	h.text(t.LockedBy)
	h.text(t.WaitsFor)
	h.text(t.ReplyTo)
	h.text(t.Trace)
	h.text(t.Labels)
	h.text(t.Fingerprint)
	h.bytes(t.InputHash)
	h.ints(t.Parent, t.ParentStep, t.ChildIndex, int64(t.StartAt))
	return h.digest()
}

package bus

import (
	"encoding/binary"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

// Limits of a pack of submissions. A pack closes when one more item would pass
// either; a single item may be larger than PackBytesMax on its own.
const (
	PackItemsMax = 512
	PackBytesMax = 512 << 10
)

// ErrUndecodable is wrapped by every error about a message as a whole: it
// becomes a dead letter and the stream goes on.
var ErrUndecodable = errors.New("message cannot be decoded")

// EncodePack appends a pack: the version byte, then per submission a record
// with its length in front. DecodePack reads it.
func EncodePack(dst []byte, subs []core.Submission) []byte {
	dst = append(dst, Version)
	for i := range subs {
		s := &subs[i]
		dst = binary.AppendUvarint(dst, uint64(recordSize(s)))
		dst = appendField(dst, s.Type)
		dst = appendField(dst, s.ID)
		dst = binary.AppendUvarint(dst, uint64(s.PlanVersion))
		dst = binary.AppendVarint(dst, int64(s.CompleteBy))
		dst = appendField(dst, s.ReplyTo)
		dst = appendField(dst, s.Trace)
		dst = binary.AppendVarint(dst, int64(s.At))
		dst = binary.AppendUvarint(dst, uint64(len(s.Input)))
		dst = append(dst, s.Input...)
	}
	return dst
}

// PackedSize is how many bytes a submission adds to a pack, less the version
// byte that every pack has once.
func PackedSize(s *core.Submission) int {
	n := recordSize(s)
	return uvarintSize(uint64(n)) + n
}

func recordSize(s *core.Submission) int {
	return fieldSize(len(s.Type)) + fieldSize(len(s.ID)) + uvarintSize(uint64(s.PlanVersion)) +
		varintSize(int64(s.CompleteBy)) + fieldSize(len(s.ReplyTo)) + fieldSize(len(s.Trace)) +
		varintSize(int64(s.At)) + fieldSize(len(s.Input))
}

func fieldSize(n int) int { return uvarintSize(uint64(n)) + n }

func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func varintSize(v int64) int { return uvarintSize(uint64(v)<<1 ^ uint64(v>>63)) }

func appendField(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// DecodePack reads a pack. The inputs are parts of data, not copies. Every error
// wraps ErrUndecodable: another version, a length beyond the message, too many
// items, none at all.
func DecodePack(data []byte) ([]core.Submission, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: pack is empty", ErrUndecodable)
	}
	if data[0] != Version {
		return nil, fmt.Errorf("%w: pack has version %d, want %d", ErrUndecodable, data[0], Version)
	}
	rest := data[1:]
	subs := make([]core.Submission, 0, 16)
	lastType := ""
	for len(rest) > 0 {
		if len(subs) == PackItemsMax {
			return nil, fmt.Errorf("%w: pack has more than %d items", ErrUndecodable, PackItemsMax)
		}
		r := reader{rest: rest}
		record := r.bytes("record")
		if r.err != nil {
			return nil, fmt.Errorf("%w: pack item %d: %w", ErrUndecodable, len(subs)+1, r.err)
		}
		rest = r.rest
		s, err := decodeRecord(record, lastType)
		if err != nil {
			return nil, fmt.Errorf("%w: pack item %d: %w", ErrUndecodable, len(subs)+1, err)
		}
		lastType = s.Type
		subs = append(subs, s)
	}
	if len(subs) == 0 {
		return nil, fmt.Errorf("%w: pack has no item", ErrUndecodable)
	}
	return subs, nil
}

// decodeRecord reads one item. Most packs hold one type: lastType saves making
// its string again.
func decodeRecord(record []byte, lastType string) (core.Submission, error) {
	r := reader{rest: record}
	var s core.Submission
	if taskType := r.bytes("type"); string(taskType) == lastType {
		s.Type = lastType
	} else {
		s.Type = string(taskType)
	}
	s.ID = string(r.bytes("id"))
	version := r.uvarint("plan version")
	s.PlanVersion = int64(version)
	s.CompleteBy = core.Instant(r.varint("complete-by"))
	s.ReplyTo = string(r.bytes("reply-to"))
	s.Trace = string(r.bytes("trace"))
	s.At = core.Instant(r.varint("time"))
	if input := r.bytes("input"); len(input) > 0 {
		s.Input = input
	}
	switch {
	case r.err != nil:
		return s, r.err
	case s.PlanVersion < 0:
		return s, fmt.Errorf("plan version %d is too large", version)
	case len(r.rest) > 0:
		return s, fmt.Errorf("%d bytes after the input", len(r.rest))
	}
	return s, nil
}

var errShort = errors.New("ends early or has a length beyond its end")

// reader takes a record apart and keeps the first error.
type reader struct {
	rest   []byte
	marked bool // each record of a batch has a mark
	err    error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", what, errShort)
	}
	r.rest = nil
}

func (r *reader) uvarint(what string) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail(what)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint(what string) int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail(what)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// bytes cuts a field with its length in front; its capacity ends with it, so
// that an append cannot reach the next one.
func (r *reader) bytes(what string) []byte {
	n := r.uvarint(what)
	if n > uint64(len(r.rest)) {
		r.fail(what)
		return nil
	}
	field := r.rest[:n:n]
	r.rest = r.rest[n:]
	return field
}

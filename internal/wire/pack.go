package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"

	"duly.dev/duly/internal/core"
)

// Limits of a pack of submissions. A pack closes when one more item would pass
// either; a single item may be larger than PackBytesMax on its own.
const (
	PackItemsMax = 512
	PackBytesMax = 512 << 10
)

// Versions of packs. Behind its version byte a compressed pack has the rest of a plain one
// as a block of S2: inputs of one type repeat their members' names, and what is not written
// need not be copied, synced and read.
const (
	packPlain      = Version
	packCompressed = 2
)

// Bounds of a compressed pack. A decoder allocates the length that the block claims, so
// that must be in proportion to what came.
const (
	compressLeast = 1 << 10 // bytes below which a pack stays plain: there is little to repeat
	compressMost  = 1 << 20 // and above
	compressRatio = 64      // bytes out of one, at most
)

// AppendPack appends a pack: the version byte, then per submission a record
// with its length in front. decodePack reads it.
func AppendPack(dst []byte, subs []core.Submission) []byte {
	dst = append(dst, packPlain)
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
		if len(s.Labels) > 0 || s.StartAt != 0 { // most have neither, and no byte for them
			dst = binary.AppendUvarint(dst, uint64(len(s.Labels)))
			for _, l := range s.Labels {
				dst = appendField(dst, l.Key)
				dst = appendField(dst, l.Value)
			}
			if s.StartAt != 0 {
				dst = binary.AppendVarint(dst, int64(s.StartAt))
			}
		}
	}
	return dst
}

// AppendCompressedPack appends the compressed form of a plain pack, or reports false where
// that is not smaller or a decoder would refuse it.
func AppendCompressedPack(dst, pack []byte) ([]byte, bool) {
	plain := pack[1:]
	if len(plain) < compressLeast || len(plain) > compressMost {
		return dst, false
	}
	begin := len(dst)
	dst = slices.Grow(dst, 1+s2.MaxEncodedLen(len(plain)))
	block := s2.Encode(dst[begin+1:cap(dst)], plain) // it has the room, so it is in dst
	if len(block) >= len(plain) || len(block)*compressRatio < len(plain) {
		return dst, false
	}
	dst = dst[:begin+1+len(block)]
	dst[begin] = packCompressed
	return dst, true
}

// plainPack returns what is behind the version byte of a plain pack.
func plainPack(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errors.New("pack is empty")
	}
	version, rest := data[0], data[1:]
	switch version {
	case packPlain:
		return rest, nil
	case packCompressed:
		n, err := s2.DecodedLen(rest)
		if err != nil {
			return nil, fmt.Errorf("compressed pack: %w", err)
		}
		if limit := min(compressMost, len(rest)*compressRatio); n > limit {
			return nil, fmt.Errorf("compressed pack of %d bytes says it has %d, the limit is %d", len(rest), n, limit)
		}
		plain, err := s2.Decode(nil, rest)
		if err != nil {
			return nil, fmt.Errorf("compressed pack: %w", err)
		}
		return plain, nil
	default:
		return nil, fmt.Errorf("pack has version %d, want %d or %d", version, packPlain, packCompressed)
	}
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
		varintSize(int64(s.At)) + fieldSize(len(s.Input)) + labelsSize(s.Labels) + startSize(s)
}

func labelsSize(labels []core.Label) int {
	if len(labels) == 0 {
		return 0
	}
	n := uvarintSize(uint64(len(labels)))
	for _, l := range labels {
		n += fieldSize(len(l.Key)) + fieldSize(len(l.Value))
	}
	return n
}

// startSize is what a start-at adds, with the number of labels where there are none.
func startSize(s *core.Submission) int {
	if s.StartAt == 0 {
		return 0
	}
	n := varintSize(int64(s.StartAt))
	if len(s.Labels) == 0 {
		n++
	}
	return n
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

// decodePack reads a pack, plain or compressed. The inputs are parts of data or of
// what it was compressed from, not copies. Every error wraps ErrUndecodable: another
// version, a length beyond the message, too many items, none at all.
func decodePack(data []byte) ([]core.Submission, error) {
	rest, err := plainPack(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
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
	if r.err == nil && len(r.rest) > 0 {
		s.Labels = r.labels()
		if r.err == nil && len(r.rest) > 0 {
			if s.StartAt = core.Instant(r.varint("start-at")); r.err == nil && s.StartAt == 0 {
				r.err = errors.New("start-at is 0, which is written as none")
			}
		} else if r.err == nil && len(s.Labels) == 0 {
			r.err = errors.New("neither labels nor a start-at behind the input")
		}
	}
	switch {
	case r.err != nil:
		return s, r.err
	case s.PlanVersion < 0:
		return s, fmt.Errorf("plan version %d is too large", version)
	case len(r.rest) > 0:
		return s, fmt.Errorf("%d bytes after the last field", len(r.rest))
	}
	return s, nil
}

// labels reads those behind the input, of which there may be none before a start-at.
func (r *reader) labels() []core.Label {
	n := r.uvarint("labels")
	if r.err == nil && n > core.LabelsMax {
		r.err = fmt.Errorf("%d labels behind the input, want %d at most", n, core.LabelsMax)
	}
	if r.err != nil || n == 0 {
		return nil
	}
	labels := make([]core.Label, n)
	for i := range labels {
		labels[i] = core.Label{Key: string(r.bytes("key of a label")), Value: string(r.bytes("value of a label"))}
	}
	return labels
}

var errShort = errors.New("ends early or has a length beyond its end")

// reader reads the fields of a record and keeps the first error.
type reader struct {
	rest []byte
	err  error
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

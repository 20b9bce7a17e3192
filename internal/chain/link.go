package chain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

// Hash is that of a link, and of all before it.
type Hash [sha256.Size]byte

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(h) {
		return fmt.Errorf("hash: %d digits, want %d", len(text), hex.EncodedLen(len(h)))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// HashOf is a hash as it is stored. Error: another length.
func HashOf(b []byte) (h Hash, err error) {
	if len(b) != len(h) {
		return h, fmt.Errorf("hash: %d bytes, want %d", len(b), len(h))
	}
	return Hash(b), nil
}

// Kind is why a link was added. The numbers are stored.
type Kind int16

// The kinds of links.
const (
	KindCommit   Kind = 1 // of a commit
	KindBegin    Kind = 2 // a takeover of a partition without a chain, or whose owners before kept none
	KindWentBack Kind = 3 // a takeover that found that the database had gone back
)

// Link is one element of a partition's chain.
type Link struct {
	Partition int          `json:"partition"`
	Height    int64        `json:"height"` // from 1 on
	Epoch     int64        `json:"epoch"`
	Commit    int64        `json:"commit"` // its id, or that of the takeover
	At        core.Instant `json:"at"`     // the latest time in its rows, or of the takeover
	Kind      Kind         `json:"kind"`
	Content   []byte       `json:"content,omitempty"` // see Content
	Hash      Hash         `json:"hash"`
}

// linkDomain keeps the hashes of links apart from all others. Its number is that of the
// form of what is hashed.
const linkDomain = "duly link 1\x00"

// HashAfter is what the link's hash has to be where the link before has that hash; the zero
// hash is before the first.
func (l *Link) HashAfter(before Hash) Hash {
	head := make([]byte, 0, len(linkDomain)+len(before)+7*binary.MaxVarintLen64)
	head = append(append(head, linkDomain...), before[:]...)
	for _, v := range []int64{int64(l.Partition), l.Height, l.Epoch, l.Commit, int64(l.At), int64(l.Kind), int64(len(l.Content))} {
		head = binary.AppendVarint(head, v)
	}
	h := sha256.New()
	_, _ = h.Write(head) // it never fails
	_, _ = h.Write(l.Content)
	return Hash(h.Sum(nil))
}

// DigestBytes is the length of a Digest.
const DigestBytes = 20

// Digest is the beginning of the SHA-256 of a row's values.
type Digest [DigestBytes]byte

// Entry names one row that a commit wrote.
type Entry struct {
	Number int64 // of the task
	Seq    int64 // of the journal row, or of the task as its row says it
	Task   bool  // a row of tasks; else one of the journal
	// EndedAt, of a row of tasks, is when the task ended so that retention may forget it;
	// 0: it has not.
	EndedAt core.Instant
	Digest  Digest
}

// Trim says that what was named up to a link is named again, as far as it is not
// forgotten: everything below that link may be gone.
type Trim struct {
	Height int64
	Hash   Hash // of that link
}

// Begin is that a chain begins, or begins again.
type Begin struct {
	NextNumber int64        // tasks of lower numbers were there before
	Since      core.Instant // of the link before; 0: none was before
	At         core.Instant // rows that were written from Since to then are in no link
}

// Content is what a link says.
type Content struct {
	Entries []Entry
	Carried []Entry // named by earlier links already
	Trim    *Trim
	Begins  []Begin // with those of earlier links that are not kept
}

// What a piece of a content is, in its first byte.
const (
	tagJournal = 1
	tagTask    = 2
	tagEnded   = 3 // a row of tasks with the time of the task's end
	tagBegin   = 4
	tagTrim    = 5
	carried    = 0x10 // beside the first three
)

// AppendEntry adds an entry to the content of a link.
func AppendEntry(b []byte, e *Entry, isCarried bool) []byte {
	tag := byte(tagJournal)
	switch {
	case e.Task && e.EndedAt != 0:
		tag = tagEnded
	case e.Task:
		tag = tagTask
	}
	if isCarried {
		tag |= carried
	}
	b = append(b, tag)
	b = binary.AppendUvarint(b, uint64(e.Number))
	b = binary.AppendUvarint(b, uint64(e.Seq))
	if e.Task && e.EndedAt != 0 {
		b = binary.AppendUvarint(b, uint64(e.EndedAt))
	}
	return append(b, e.Digest[:]...)
}

// AppendTrim adds a trim to the content of a link.
func AppendTrim(b []byte, t *Trim) []byte {
	b = binary.AppendUvarint(append(b, tagTrim), uint64(t.Height))
	return append(b, t.Hash[:]...)
}

// AppendBegin adds a beginning to the content of a link.
func AppendBegin(b []byte, g *Begin) []byte {
	b = binary.AppendUvarint(append(b, tagBegin), uint64(g.NextNumber))
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(g.Since)), uint64(g.At))
}

// errContent is a content that no owner has written.
var errContent = errors.New("its content cannot be read")

// DecodeContent reads the content of a link.
func DecodeContent(b []byte) (c Content, err error) {
	d := decoder{b: b}
	for len(d.b) > 0 && !d.bad {
		tag := d.bytes(1)[0]
		switch tag &^ carried {
		case tagJournal, tagTask, tagEnded:
			d.entry(tag, &c)
		case tagBegin:
			c.Begins = append(c.Begins, Begin{NextNumber: d.number(), Since: core.Instant(d.number()), At: core.Instant(d.number())})
		case tagTrim:
			t := Trim{Height: d.number()}
			copy(t.Hash[:], d.bytes(len(t.Hash)))
			c.Trim = &t
		default:
			d.bad = true
		}
	}
	if d.bad {
		return c, errContent
	}
	return c, nil
}

// decoder reads a content from its beginning.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number() int64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || int64(v) < 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}

// bytes are the next n; zeros, if there are not so many.
func (d *decoder) bytes(n int) []byte {
	if len(d.b) < n {
		d.bad, d.b = true, nil
		return make([]byte, n)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) entry(tag byte, c *Content) {
	e := Entry{Task: tag&^carried != tagJournal, Number: d.number(), Seq: d.number()}
	if tag&^carried == tagEnded {
		e.EndedAt = core.Instant(d.number())
	}
	copy(e.Digest[:], d.bytes(DigestBytes))
	if tag&carried != 0 {
		c.Carried = append(c.Carried, e)
		return
	}
	c.Entries = append(c.Entries, e)
}

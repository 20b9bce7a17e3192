package wire

import (
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/dchest/siphash"

	"duly.dev/duly/internal/core"
)

// A mark says that a reply answers a command of ours: only who was sent the
// command knows it. Without it an agent could count up the numbers of a reply
// subject and answer for another agent's step.

// markBytes is the length of a mark: a forger has one chance in 2^64 each time.
const tokenBytes = 8

// keyBytes is the length of the key that marks are made with.
const SignerKeyBytes = 16

// Kinds of marks: what is one for a reply is none for a batch.
const (
	kindReply = 1
	kindBatch = 2
)

// marker makes and checks marks; nil makes none and takes everything. It may be
// used by several goroutines at once.
type Signer struct{ k0, k1 uint64 }

func NewSigner(key []byte) (*Signer, error) {
	if len(key) != SignerKeyBytes {
		return nil, fmt.Errorf("key of replies has %d bytes, want %d", len(key), SignerKeyBytes)
	}
	return &Signer{binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])}, nil
}

// key is what newMarker was given; nil for none.
func (k *Signer) Key() []byte {
	if k == nil {
		return nil
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, k.k0), k.k1)
}

// make is SipHash-2-4: made for short messages and tags of 64 bits, and without the
// allocation and most of the time that a MAC of the standard library costs. A mark
// is made and checked for every command.
func (k *Signer) sign(kind byte, partition int, number, seq, commit int64) (t core.Token) {
	var b [32]byte
	b[0] = kind
	binary.BigEndian.PutUint32(b[4:], uint32(partition))
	binary.BigEndian.PutUint64(b[8:], uint64(number))
	binary.BigEndian.PutUint64(b[16:], uint64(seq))
	binary.BigEndian.PutUint64(b[24:], uint64(commit))
	binary.LittleEndian.PutUint64(t[:], siphash.Hash(k.k0, k.k1, b[:]))
	return t
}

// token is the mark of one command as one commit issued it.
func (k *Signer) Token(partition int, number, seq, commit int64) core.Token {
	if k == nil {
		return core.Token{}
	}
	return k.sign(kindReply, partition, number, seq, commit)
}

// Genuine reports whether a reply answers the command that this commit issued. Only
// the owner of the task knows the commit, so it asks.
func (k *Signer) Genuine(r *core.Reply, commit int64) bool {
	if k == nil {
		return true
	}
	want := k.Token(r.Partition, r.Number, r.Seq, commit)
	return subtle.ConstantTimeCompare(r.Token[:], want[:]) == 1
}

// replySubject is where the answer to one command goes, with its mark as the
// last token.
func (k *Signer) ReplySubject(names Names, c *core.Command) string {
	var a [128]byte
	b := names.appendReply(a[:0], c.Partition, c.Number, c.Seq)
	if k != nil {
		m := k.Token(c.Partition, c.Number, c.Seq, c.Commit)
		b = hex.AppendEncode(append(b, '.'), m[:])
	}
	return string(b)
}

// tokenOf reads the token at the end of a reply's subject; none is zero.
func tokenOf(rest string) (t core.Token) {
	if len(rest) == 2*tokenBytes {
		if _, err := hex.Decode(t[:], []byte(rest)); err != nil {
			return core.Token{}
		}
	}
	return t
}

// BatchReplySubject is where a batch of commands is answered, or reported as having no
// listener: its number in the last token, after prefix (Names.BatchReplyPrefix) and the agent.
func (k *Signer) BatchReplySubject(prefix, agent string, n uint64) string {
	return prefix + agent + "." + k.batchToken(n)
}

// batchToken is the last token of a batch's reply subject: its number, and its
// mark, so that nobody who was not sent the batch can say that nobody was.
func (k *Signer) batchToken(n uint64) string {
	var a [48]byte
	b := strconv.AppendUint(a[:0], n, 36)
	if k != nil {
		m := k.sign(kindBatch, 0, int64(n), 0, 0)
		b = hex.AppendEncode(append(b, '-'), m[:])
	}
	return string(b)
}

// batchNumber reads the number of a batch from its reply subject.
func (k *Signer) BatchNumber(subject string) (n uint64, ok bool) {
	token := subject[strings.LastIndexByte(subject, '.')+1:]
	number := token
	if k != nil {
		number = token[:max(0, len(token)-2*tokenBytes-1)]
	}
	n, err := strconv.ParseUint(number, 36, 64)
	return n, err == nil && subtle.ConstantTimeCompare([]byte(token), []byte(k.batchToken(n))) == 1
}

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

// A reply token proves that a reply answers one copy of a command of a scheduler: only the agent that
// was sent the copy knows it. The numbers of a reply subject can be guessed; without a
// token an agent could answer for the step of another agent.

// tokenBytes is the length of a token: the number of the copy, and the proof. A forged proof is right once in 2^64 tries.
const (
	tokenBytes = copyBytes + proofBytes
	copyBytes  = 4
	proofBytes = 8
)

// SignerKeyBytes is the length of the key of a Signer.
const SignerKeyBytes = 16

// Kinds of tokens: the token of a batch is never that of a reply, whose partition is less.
const (
	kindReply = 0
	kindBatch = 1 << 31
)

// Signer makes and checks the tokens of commands and batches. A nil Signer proves nothing and
// accepts every reply. It may be used by several goroutines at once.
type Signer struct{ k0, k1 uint64 }

// NewSigner makes a Signer from a key of SignerKeyBytes random bytes, which all schedulers
// of an installation share and agents must not read.
func NewSigner(key []byte) (*Signer, error) {
	if len(key) != SignerKeyBytes {
		return nil, fmt.Errorf("key of replies has %d bytes, want %d", len(key), SignerKeyBytes)
	}
	return &Signer{binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])}, nil
}

// Key is the key that NewSigner was given; nil for a nil Signer.
func (s *Signer) Key() []byte {
	if s == nil {
		return nil
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, s.k0), s.k1)
}

// sign is SipHash-2-4, a keyed hash for short messages with a tag of 64 bits. It does not
// allocate and takes a fraction of the time of an HMAC; a token is made and checked for
// every command.
func (s *Signer) sign(kind uint32, partition int, number, seq, commit int64, nth uint32) core.Token {
	t := core.TokenOf(nth)
	if s == nil {
		return t
	}
	var b [32]byte
	copy(b[:], t[:copyBytes])
	binary.BigEndian.PutUint32(b[4:], kind|uint32(partition))
	binary.BigEndian.PutUint64(b[8:], uint64(number))
	binary.BigEndian.PutUint64(b[16:], uint64(seq))
	binary.BigEndian.PutUint64(b[24:], uint64(commit))
	binary.LittleEndian.PutUint64(t[copyBytes:], siphash.Hash(s.k0, s.k1, b[:]))
	return t
}

// Token is the token of the nth copy of a command as one commit issued it.
func (s *Signer) Token(partition int, number, seq, commit int64, nth uint32) core.Token {
	return s.sign(kindReply, partition, number, seq, commit, nth)
}

// Genuine reports whether a reply answers the command that this commit issued. Only the
// owner of the task knows the commit.
func (s *Signer) Genuine(r *core.Reply, commit int64) bool {
	if s == nil {
		return true
	}
	want := s.Token(r.Partition, r.Number, r.Seq, commit, r.Token.Copy())
	return subtle.ConstantTimeCompare(r.Token[:], want[:]) == 1
}

// ReplySubject is where the answer to one command goes, with the command's token in hex as
// the last token of the subject.
func (s *Signer) ReplySubject(names Names, c *core.Command) string {
	var a [128]byte
	t := s.Token(c.Partition, c.Number, c.Seq, c.Commit, c.Copy)
	return string(hex.AppendEncode(append(names.appendReply(a[:0], c.Partition, c.Number, c.Seq), '.'), t[:]))
}

// tokenOf reads the token at the end of a reply's subject; without a valid one it is zero.
func tokenOf(rest string) (t core.Token) {
	if len(rest) == 2*tokenBytes {
		if _, err := hex.Decode(t[:], []byte(rest)); err != nil {
			return core.Token{}
		}
	}
	return t
}

// BatchReplySubject is where the replies to batch n go, and the server's report that no
// instance of the agent listens. prefix is Names.BatchReplyPrefix of the sender.
func (s *Signer) BatchReplySubject(prefix, agent string, n uint64) string {
	before := prefix + agent + "."
	return before + s.batchToken(before, n)
}

// batchToken is the last token of a batch's reply subject: its number in base 36 and its
// token, so that only a receiver of the batch can report that it had no listener. before is the rest of the subject, with
// the sender and the agent: senders number alike.
func (s *Signer) batchToken(before string, n uint64) string {
	var a [48]byte
	b := strconv.AppendUint(a[:0], n, 36)
	if s != nil {
		t := s.sign(kindBatch, 0, int64(n), int64(siphash.Hash(s.k0, s.k1, []byte(before))), 0, 0)
		b = hex.AppendEncode(append(b, '-'), t[copyBytes:])
	}
	return string(b)
}

// BatchNumber reads the number of a batch from its reply subject; ok is false for a subject
// whose token is not this Signer's, or another's.
func (s *Signer) BatchNumber(subject string) (n uint64, ok bool) {
	at := strings.LastIndexByte(subject, '.') + 1
	token := subject[at:]
	number := token
	if s != nil {
		number = token[:max(0, len(token)-2*proofBytes-1)]
	}
	n, err := strconv.ParseUint(number, 36, 64)
	return n, err == nil && subtle.ConstantTimeCompare([]byte(token), []byte(s.batchToken(subject[:at], n))) == 1
}

// BatchAnswerSubject is the subject that all replies to one sender may go to, whichever of
// its batches they answer: a batch's reply subject with number 0.
func BatchAnswerSubject(replySubject string) string {
	return replySubject[:strings.LastIndexByte(replySubject, '.')+1] + "0"
}

package bus

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/dchest/siphash"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
)

// A mark says that a reply answers a command of ours: only who was sent the
// command knows it. Without it an agent could count up the numbers of a reply
// subject and answer for another agent's step.

// markBytes is the length of a mark: a forger has one chance in 2^64 each time.
const markBytes = 8

// keyBytes is the length of the key that marks are made with.
const keyBytes = 16

// Kinds of marks: what is one for a reply is none for a batch.
const (
	markReply = 1
	markBatch = 2
)

type mark [markBytes]byte

// marker makes and checks marks; nil makes none and takes everything. It may be
// used by several goroutines at once.
type marker struct{ k0, k1 uint64 }

func newMarker(key []byte) (*marker, error) {
	if len(key) != keyBytes {
		return nil, fmt.Errorf("key of replies has %d bytes, want %d", len(key), keyBytes)
	}
	return &marker{binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])}, nil
}

// key is what newMarker was given; nil for none.
func (k *marker) key() []byte {
	if k == nil {
		return nil
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, k.k0), k.k1)
}

// make is SipHash-2-4: made for short messages and tags of 64 bits, and without the
// allocation and most of the time that a MAC of the standard library costs. A mark
// is made and checked for every command.
func (k *marker) make(kind byte, partition int, number, seq, commit int64) (m mark) {
	var b [32]byte
	b[0] = kind
	binary.BigEndian.PutUint32(b[4:], uint32(partition))
	binary.BigEndian.PutUint64(b[8:], uint64(number))
	binary.BigEndian.PutUint64(b[16:], uint64(seq))
	binary.BigEndian.PutUint64(b[24:], uint64(commit))
	binary.LittleEndian.PutUint64(m[:], siphash.Hash(k.k0, k.k1, b[:]))
	return m
}

// token is the mark of one command as one commit issued it.
func (k *marker) token(partition int, number, seq, commit int64) core.Token {
	if k == nil {
		return core.Token{}
	}
	return core.Token(k.make(markReply, partition, number, seq, commit))
}

// Genuine reports whether a reply answers the command that this commit issued. Only
// the owner of the task knows the commit, so it asks.
func (c *Conn) Genuine(r *core.Reply, commit int64) bool {
	k := c.marker.Load()
	if k == nil {
		return true
	}
	want := k.token(r.Partition, r.Number, r.Seq, commit)
	return subtle.ConstantTimeCompare(r.Token[:], want[:]) == 1
}

// replySubject is where the answer to one command goes, with its mark as the
// last token.
func (k *marker) replySubject(names Names, c *core.Command) string {
	var a [128]byte
	b := names.appendReply(a[:0], c.Partition, c.Number, c.Seq)
	if k != nil {
		m := k.token(c.Partition, c.Number, c.Seq, c.Commit)
		b = hex.AppendEncode(append(b, '.'), m[:])
	}
	return string(b)
}

// tokenOf reads the token at the end of a reply's subject; none is zero.
func tokenOf(rest string) (t core.Token) {
	if len(rest) == 2*markBytes {
		if _, err := hex.Decode(t[:], []byte(rest)); err != nil {
			return core.Token{}
		}
	}
	return t
}

// batchToken is the last token of a batch's reply subject: its number, and its
// mark, so that nobody who was not sent the batch can say that nobody was.
func (k *marker) batchToken(n uint64) string {
	var a [48]byte
	b := strconv.AppendUint(a[:0], n, 36)
	if k != nil {
		m := k.make(markBatch, 0, int64(n), 0, 0)
		b = hex.AppendEncode(append(b, '-'), m[:])
	}
	return string(b)
}

// batchNumber reads what batchToken wrote.
func (k *marker) batchNumber(token string) (n uint64, ok bool) {
	number := token
	if k != nil {
		number = token[:max(0, len(token)-2*markBytes-1)]
	}
	n, err := strconv.ParseUint(number, 36, 64)
	return n, err == nil && subtle.ConstantTimeCompare([]byte(token), []byte(k.batchToken(n))) == 1
}

// batchVersion is the version of the batches that are sent.
func (k *marker) batchVersion() byte {
	if k == nil {
		return batchPlain
	}
	return batchMarked
}

// useKey makes the connection mark its commands and take no reply without its
// mark from now on, with the key that all nodes share: a successor takes what
// answers its predecessor's commands. The first node draws it. Where the bucket was
// lost, the key that this connection has goes there again: what is under way keeps
// its marks.
func (c *Conn) useKey(ctx context.Context) error {
	kv, err := c.Bucket(ctx, c.names.BucketKeys())
	if err != nil {
		return err
	}
	key := c.marker.Load().key()
	if key == nil {
		key = make([]byte, keyBytes)
		_, _ = rand.Read(key) // it never fails
	}
	if _, err = kv.Create(ctx, KeyReplies, key); errors.Is(err, jetstream.ErrKeyExists) {
		var entry jetstream.KeyValueEntry
		if entry, err = kv.Get(ctx, KeyReplies); err == nil {
			key = entry.Value()
		}
	}
	if err != nil {
		return fmt.Errorf("key %s: %w", KeyReplies, err)
	}
	m, err := newMarker(key)
	if err == nil {
		c.marker.Store(m)
	}
	return err
}

// forged counts a reply that nobody was asked for, and says so now and then: a
// forger must not fill the log.
func (c *Conn) forged(subject string) {
	if n := c.forgeries.Add(1); n&(n-1) == 0 {
		c.log.Warn("a reply is not to a command of ours; it is passed over", "subject", short(subject), "so_far", n)
	}
}

// Forged is how many messages on subjects of replies were passed over because no batch
// of ours has their token. The tokens of single replies are the owner's to check: see Genuine.
func (c *Conn) Forged() int64 { return c.forgeries.Load() }

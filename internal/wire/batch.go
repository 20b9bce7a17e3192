package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Limits of one message with several commands or replies. It closes when one
// more would pass either; a single one may be larger than BatchBytesMax on its
// own. Commands are few enough that several instances of an agent get some each.
const (
	BatchItemsMax = 64
	BatchBytesMax = 256 << 10
)

// Versions of batches. A marked one has a mark in each record, which its reply
// repeats: see marker.
const (
	batchPlain  = 1
	batchSigned = 2
)

// BatchVersion is the first byte of a batch; signed says that each record has a token.
func BatchVersion(signed bool) byte {
	if signed {
		return batchSigned
	}
	return batchPlain
}

// BatchAnswerSubject is the one subject that all batches of a sender may be answered
// under: that of any of its batches, without the number.
func BatchAnswerSubject(replySubject string) string {
	return replySubject[:strings.LastIndexByte(replySubject, '.')+1] + "0"
}

// batchAnnounced is what an agent announces: it takes marked batches, and answers them
// at a subject with its own name in it, so that permissions can tell agents apart.
const BatchAnnounced = 3

// batchItemsLimit is what a decoder takes: other versions may pack more.
const batchItemsLimit = 4096

// appendBatchCommand appends one command to a batch: a record with its length in
// front. Agent and Undo are in the subject.
func AppendBatchCommand(dst []byte, c *core.Command, k *Signer) []byte {
	return appendRecord(dst, func(dst []byte) []byte {
		dst = appendFence(dst, c.Partition, c.Number, c.Seq)
		if k != nil {
			m := k.Token(c.Partition, c.Number, c.Seq, c.Commit)
			dst = append(dst, m[:]...)
		}
		dst = appendField(dst, c.Task)
		dst = appendField(dst, c.Type)
		dst = appendField(dst, c.Step)
		dst = binary.AppendUvarint(dst, uint64(c.Attempt))
		dst = binary.AppendUvarint(dst, uint64(c.Round))
		dst = binary.AppendVarint(dst, int64(c.CompleteBy))
		dst = binary.AppendVarint(dst, int64(c.Left/time.Millisecond))
		dst = appendField(dst, c.Trace)
		dst = appendBytes(dst, c.Input)
		dst = binary.AppendUvarint(dst, uint64(len(c.Results)))
		for i := range c.Results {
			dst = appendField(dst, c.Results[i].Step)
			dst = appendBytes(dst, c.Results[i].Result)
		}
		if !c.Undo || len(c.Result) == 0 {
			return dst // no result and nothing after it: older agents find the end here
		}
		return appendBytes(dst, c.Result)
	})
}

// decodeBatchCommands calls take with each command of a batch and with its mark,
// nil where it has none. Payloads are parts of data, not copies. Every error wraps ErrUndecodable.
func DecodeBatchCommands(data []byte, take func(core.Command, *core.Token)) error {
	return eachRecord(data, "batch of commands", func(r *reader) error {
		var c core.Command
		c.Partition, c.Number, c.Seq = r.fence()
		m := r.token()
		c.Task, c.Type, c.Step = string(r.bytes("task")), string(r.bytes("type")), string(r.bytes("step"))
		c.Attempt, c.Round = r.small("attempt"), r.small("round")
		c.CompleteBy = core.Instant(r.varint("complete-by"))
		left := r.varint("time left")
		c.Left = time.Duration(left) * time.Millisecond
		c.Trace = core.CleanTrace(string(r.bytes("trace")))
		c.Input = r.json("input")
		results := r.small("results")
		for range min(results, core.StepsMax) {
			if r.err != nil {
				break
			}
			c.Results = append(c.Results, core.StepResult{Step: string(r.bytes("step of a result")), Result: r.json("result of a step")})
		}
		if r.err == nil && len(r.rest) > 0 {
			c.Result = r.json("result")
		}
		switch limit := int64(core.DurationMax / time.Millisecond); {
		case r.err != nil:
			return r.err
		case results > core.StepsMax:
			return fmt.Errorf("%d results, the limit is %d", results, core.StepsMax)
		case left < -limit || left > limit:
			return fmt.Errorf("time left: %d ms is out of range", left)
		}
		if err := checkCommand(&c); err != nil {
			return err
		}
		take(c, m)
		return nil
	})
}

// appendBatchReply appends one reply to a batch; m is the mark of its command.
func AppendBatchReply(dst []byte, c *core.Command, m *core.Token, r *core.Reply) []byte {
	return appendRecord(dst, func(dst []byte) []byte {
		dst = appendFence(dst, c.Partition, c.Number, c.Seq)
		if m != nil {
			dst = append(dst, m[:]...)
		}
		dst = binary.AppendUvarint(dst, uint64(r.Code))
		if r.Code != 0 {
			return appendField(dst, CutText(r.Error))
		}
		return appendBytes(dst, r.Result)
	})
}

// decodeBatchReplies calls take with each reply of a batch, all of that instance. Results
// are parts of data. Every error wraps ErrUndecodable.
func DecodeBatchReplies(data []byte, from string, resultMax int, take func(core.Reply)) error {
	return eachRecord(data, "batch of replies", func(r *reader) error {
		reply := core.Reply{From: from}
		reply.Partition, reply.Number, reply.Seq = r.fence()
		if m := r.token(); m != nil {
			reply.Token = *m
		}
		code := r.small("code")
		payload := r.bytes("payload")
		if r.err != nil {
			return r.err
		}
		if code != 0 {
			reply.Code, reply.Error = codeIn(code), CutText(string(payload))
		} else {
			checkResult(&reply, payload, resultMax)
		}
		take(reply)
		return nil
	})
}

// appendRecord appends what fill appends, with its length in front.
func appendRecord(dst []byte, fill func([]byte) []byte) []byte {
	// Three bytes hold the length of nearly every record; the rare larger one is
	// moved.
	const room = 3
	at := len(dst)
	dst = append(dst, 0, 0, 0)
	dst = fill(dst)
	n := uint64(len(dst) - at - room)
	if size := uvarintSize(n); size > room {
		dst = append(dst, make([]byte, size-room)...)
		copy(dst[at+size:], dst[at+room:])
		binary.PutUvarint(dst[at:], n)
		return dst
	}
	// A number may be written with more bytes than it needs.
	dst[at], dst[at+1], dst[at+2] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)
	return dst
}

func appendFence(dst []byte, partition int, number, seq int64) []byte {
	dst = binary.AppendUvarint(dst, uint64(partition))
	dst = binary.AppendUvarint(dst, uint64(number))
	return binary.AppendUvarint(dst, uint64(seq))
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// eachRecord takes a batch apart. A record that take refuses does not stop those
// after it; its error is returned, the first if there are several.
func eachRecord(data []byte, what string, take func(*reader) error) error {
	if len(data) == 0 {
		return fmt.Errorf("%w: %s is empty", ErrUndecodable, what)
	}
	if data[0] != batchPlain && data[0] != batchSigned {
		return fmt.Errorf("%w: %s has version %d, want %d or %d", ErrUndecodable, what, data[0], batchPlain, batchSigned)
	}
	var first error
	all := reader{rest: data[1:]}
	for n := 1; len(all.rest) > 0; n++ {
		if n > batchItemsLimit {
			return fmt.Errorf("%w: %s has more than %d items", ErrUndecodable, what, batchItemsLimit)
		}
		one := reader{rest: all.bytes("record"), signed: data[0] == batchSigned}
		if all.err != nil {
			return fmt.Errorf("%w: %s, item %d: %w", ErrUndecodable, what, n, all.err)
		}
		if err := take(&one); err != nil && first == nil {
			first = fmt.Errorf("%w: %s, item %d: %w", ErrUndecodable, what, n, err)
		}
	}
	return first
}

// fence reads what says which command a reply answers.
func (r *reader) fence() (partition int, number, seq int64) {
	return r.small("partition"), int64(r.uvarint("number") & (1<<63 - 1)), int64(r.uvarint("seq") & (1<<63 - 1))
}

// mark reads the mark of a record; nil where the batch has none.
func (r *reader) token() *core.Token {
	if !r.signed {
		return nil
	}
	if len(r.rest) < tokenBytes {
		r.fail("mark")
		return nil
	}
	m := core.Token(r.rest)
	r.rest = r.rest[tokenBytes:]
	return &m
}

// small reads a count or code.
func (r *reader) small(what string) int {
	v := r.uvarint(what)
	if v > 1<<31-1 {
		r.fail(what)
		return 0
	}
	return int(v)
}

// json reads a payload; an empty one is null, as in a command of its own.
func (r *reader) json(what string) []byte {
	if b := r.bytes(what); len(b) > 0 {
		return b
	}
	return null
}

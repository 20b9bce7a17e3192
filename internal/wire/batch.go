package wire

import (
	"encoding/binary"
	"fmt"
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

// BatchVersion is the first byte of a batch, and what an agent that takes batches announces as MetaBatch. Each record has a
// token, which its reply repeats: see Signer.
const BatchVersion = 4

// batchItemsLimit bounds what a decoder accepts: other versions may pack more than
// BatchItemsMax.
const batchItemsLimit = 4096

// AppendBatchCommand appends one command to a batch, with its token: a record with its length in front. Agent and Undo are in the subject.
func AppendBatchCommand(dst []byte, c *core.Command, signer *Signer) []byte {
	return appendRecord(dst, func(dst []byte) []byte {
		dst = appendFence(dst, c.Partition, c.Number, c.Seq)
		token := signer.Token(c.Partition, c.Number, c.Seq, c.Commit, c.Copy)
		dst = append(dst, token[:]...)
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
			return dst // no result, and no byte that says so
		}
		return appendBytes(dst, c.Result)
	})
}

// DecodeBatchCommands calls take with each command of a batch and its token. Payloads are parts of data, not copies. A command that cannot be
// decoded does not stop those after it. Every error wraps ErrUndecodable.
func DecodeBatchCommands(data []byte, take func(core.Command, core.Token)) error {
	return eachRecord(data, "batch of commands", func(r *reader) error {
		var c core.Command
		c.Partition, c.Number, c.Seq = r.commandRef()
		token := r.token()
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
		take(c, token)
		return nil
	})
}

// AppendBatchReply appends one reply to a batch; token is that of its command.
func AppendBatchReply(dst []byte, c *core.Command, token core.Token, r *core.Reply) []byte {
	return appendRecord(dst, func(dst []byte) []byte {
		dst = appendFence(dst, c.Partition, c.Number, c.Seq)
		dst = append(dst, token[:]...)
		dst = binary.AppendUvarint(dst, uint64(r.Code))
		if r.Code != 0 {
			return appendField(dst, CutText(r.Error))
		}
		return appendBytes(dst, r.Result)
	})
}

// DecodeBatchReplies calls take with each reply of a batch, all from one instance of an
// agent. Results are parts of data, not copies; one that is not JSON or larger than
// resultMax is a failed attempt with core.CodeFailed. Every error wraps ErrUndecodable.
func DecodeBatchReplies(data []byte, from string, resultMax int, take func(core.Reply)) error {
	return eachRecord(data, "batch of replies", func(r *reader) error {
		reply := core.Reply{From: from}
		reply.Partition, reply.Number, reply.Seq = r.commandRef()
		reply.Token = r.token()
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

// eachRecord calls take with each record of a batch. A record that take refuses does not stop those
// after it; its error is returned, the first if there are several.
func eachRecord(data []byte, what string, take func(*reader) error) error {
	if len(data) == 0 {
		return fmt.Errorf("%w: %s is empty", ErrUndecodable, what)
	}
	if data[0] != BatchVersion {
		return fmt.Errorf("%w: %s has version %d, want %d", ErrUndecodable, what, data[0], BatchVersion)
	}
	var first error
	all := reader{rest: data[1:]}
	for n := 1; len(all.rest) > 0; n++ {
		if n > batchItemsLimit {
			return fmt.Errorf("%w: %s has more than %d items", ErrUndecodable, what, batchItemsLimit)
		}
		one := reader{rest: all.bytes("record")}
		if all.err != nil {
			return fmt.Errorf("%w: %s, item %d: %w", ErrUndecodable, what, n, all.err)
		}
		if err := take(&one); err != nil && first == nil {
			first = fmt.Errorf("%w: %s, item %d: %w", ErrUndecodable, what, n, err)
		}
	}
	return first
}

// commandRef reads the numbers that say which command a reply answers.
func (r *reader) commandRef() (partition int, number, seq int64) {
	return r.small("partition"), int64(r.uvarint("number") & (1<<63 - 1)), int64(r.uvarint("seq") & (1<<63 - 1))
}

// token reads the token of a record.
func (r *reader) token() (t core.Token) {
	if len(r.rest) < tokenBytes {
		r.fail("token")
		return t
	}
	t, r.rest = core.Token(r.rest), r.rest[tokenBytes:]
	return t
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

package natsbus

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/wire"
)

// buffers holds memory for encoders, whose output the connection copies.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// bufferMax is the largest buffer that is kept, so that a rare large message does not keep its memory for ever.
const bufferMax = 1 << 20

// buffer takes the memory of an earlier message, or new memory. Give it back by release.
func buffer() *[]byte { return buffers.Get().(*[]byte) }

// release keeps the memory for another message, unless it grew too large for most.
func release(b *[]byte) {
	if cap(*b) <= bufferMax {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// SubmitRequest is one submission at the request endpoint. Its type and id are in their alphabet and its headers can be
// read; nothing else of it is checked.
type SubmitRequest struct {
	submit.Form
	// HasReply is whether the sender waits for an answer.
	HasReply bool

	conn  *Conn
	reply string
}

// Accept answers that the submission is stored. warning may be empty.
func (r *SubmitRequest) Accept(stream string, seq uint64, partition int, warning string) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return wire.AppendAccepted(b, &wire.SubmitAnswer{Stream: stream, Seq: seq, Task: r.ID, Partition: partition, Warning: wire.CutText(warning)})
	})
}

// Reject answers that it is not stored. code is an HTTP status, errCode a finer one; retry is when to try
// again, or 0.
func (r *SubmitRequest) Reject(code, errCode int, description string, retry time.Duration) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return wire.AppendRefused(b, &wire.RefusedError{APIError: wire.APIError{Code: code, ErrCode: errCode, Description: wire.CutText(description)}, Task: r.ID, Retry: retry})
	})
}

// mayAnswer reports whether a request may be answered on the subject that it names; if not, its sender waits
// in vain. Duly may publish where the sender may not, so a request must not direct an answer to anything but
// inboxes and the configured prefixes.
func (c *Conn) mayAnswer(reply string) bool {
	if reply == "" {
		return false
	}
	err := c.names.CheckAnswer(reply, c.replyTo)
	if err != nil {
		c.log.Debug("answer withheld", "error", err)
	}
	return err == nil
}

// answer publishes an answer, if mayAnswer allows it. If it cannot be sent, the sender's request times out
// and is repeated.
func (c *Conn) answer(reply string, encode func([]byte) []byte) {
	if !c.mayAnswer(reply) {
		return
	}
	b := buffer()
	defer release(b)
	*b = encode(*b)
	if err := c.nc.Publish(reply, *b); err != nil {
		c.log.Debug("answer not sent", "subject", reply, "error", err)
	}
}

// ServeSubmit serves the request endpoint, sharing it with every other ingest. handler is called with one
// request at a time and must not wait for the stream. Names outside their alphabet and unreadable headers are
// refused here. Of requests that arrive faster than they are handled only requestsMessagesMax wait; further
// ones are dropped, and their senders ask again.
func (c *Conn) ServeSubmit(handler func(*SubmitRequest)) (*Subscription, error) {
	return c.subscribeRequests(c.names.PatternSubmit(), wire.GroupIngest, func(msg *nats.Msg) {
		r := &SubmitRequest{Form: submit.Form{Input: msg.Data}, HasReply: msg.Reply != "", conn: c, reply: msg.Reply}
		var err error
		if r.Type, r.ID, err = c.names.ParseSubmit(msg.Subject); err != nil {
			r.Reject(wire.CodeBadRequest, wire.ErrCodeOf(err, wire.ErrCodeBody), err.Error(), 0)
			return
		}
		if err = r.ReadHeader(headerOf(msg)); err != nil {
			r.Reject(wire.CodeBadRequest, wire.ErrCodeHeader, err.Error(), 0)
			return
		}
		handler(r)
	})
}

// headerOf returns the headers of a message. The NATS client drops headers that it cannot parse; these are
// marked as unreadable, so that what they said is not ignored silently.
func headerOf(msg *nats.Msg) wire.Header {
	if msg.Header == nil && msg.Size() > len(msg.Subject)+len(msg.Reply)+len(msg.Data) {
		return wire.Header{submit.Unreadable: {""}}
	}
	return wire.Header(msg.Header)
}

// errPacksFull says that this connection has too many unconfirmed packs.
var errPacksFull = errors.New("too many packs wait for the stream's confirmation")

// PublishPack stores a pack of submissions, all of one partition, and calls done once: with the pack's
// position in the stream, or with the reason why it is not stored, which is a *BusyError if trying again can
// help. done runs on another goroutine, or before PublishPack returns if the pack could not even be sent.
// subs may be reused as soon as PublishPack returns.
func (c *Conn) PublishPack(partition int, subs []core.Submission, done func(seq uint64, err error)) {
	if n := len(subs); n < 1 || n > wire.PackItemsMax {
		done(0, fmt.Errorf("pack has %d items, want 1 to %d", n, wire.PackItemsMax))
		return
	}
	if c.packs.Add(1) > c.packsMax {
		c.packs.Add(-1)
		done(0, &BusyError{Retry: retrySoon, Err: errPacksFull})
		return
	}
	b := buffer()
	defer release(b)
	*b = wire.AppendPack(*b, subs)
	data := *b
	small := buffer()
	defer release(small)
	var smaller bool
	if *small, smaller = wire.AppendCompressedPack(*small, *b); smaller {
		data = *small
	}
	c.publish(taskKind(c.streamOf(partition)), c.names.PackSubject(partition), nil, data, func(seq uint64, err error) {
		c.packs.Add(-1)
		if err != nil {
			err = fmt.Errorf("pack for partition %d: %w", partition, err)
		}
		done(seq, err)
	})
}

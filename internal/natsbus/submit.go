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

// buffers are reused by encoders whose output the connection copies.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// bufferMax keeps a rare large message from holding its memory for ever.
const bufferMax = 1 << 20

func buffer() *[]byte { return buffers.Get().(*[]byte) }

func release(b *[]byte) {
	if cap(*b) <= bufferMax {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// SubmitRequest is one submission at the request endpoint. Only its names are checked.
type SubmitRequest struct {
	submit.Form
	HasReply bool // the sender waits for an answer

	conn  *Conn
	reply string
}

// Accept answers that the submission is stored, with a warning, which may be empty.
func (r *SubmitRequest) Accept(stream string, seq uint64, partition int, warning string) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return wire.AppendAccepted(b, &wire.SubmitAnswer{Stream: stream, Seq: seq, Task: r.ID, Partition: partition, Warning: wire.CutText(warning)})
	})
}

// Reject answers that it is not: code as HTTP, errCode finer, retry 0 or when to
// try again.
func (r *SubmitRequest) Reject(code, errCode int, description string, retry time.Duration) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return wire.AppendRefused(b, &wire.RefusedError{APIError: wire.APIError{Code: code, ErrCode: errCode, Description: wire.CutText(description)}, Task: r.ID, Retry: retry})
	})
}

// mayAnswer reports whether a request is answered where it asks for it. Else its sender waits in vain: Duly may publish
// where the sender may not, so no request leads it out of inboxes and what is configured.
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

// answer sends an answer, if mayAnswer allows it. If it cannot be sent, the request
// times out at its sender, which asks again.
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

// ServeSubmit serves the request endpoint, together with every other ingest. handler is
// called one request at a time and must not wait for the stream. A subject with names
// outside their alphabet, and a header that cannot be taken, is refused here. Requests that come faster than they are handled
// are dropped beyond requestsMessagesMax: who asks hears nothing, and asks again.
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

// headerOf is the header of a message. One that cannot be read the NATS client passes on as none: what it said would be
// left out.
func headerOf(msg *nats.Msg) wire.Header {
	if msg.Header == nil && msg.Size() > len(msg.Subject)+len(msg.Reply)+len(msg.Data) {
		return wire.Header{submit.Unreadable: {""}}
	}
	return wire.Header(msg.Header)
}

// errPacksFull says that our own window of packs is full.
var errPacksFull = errors.New("too many packs wait for the stream's confirmation")

// PublishPack stores a pack of submissions, all of that partition, and calls done
// once: with the pack's position in the stream, or with why it is not stored, a
// *BusyError where trying again can help. done runs on another goroutine, or
// before PublishPack returns when the pack could not even be sent. subs may be
// reused as soon as PublishPack returns.
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

package natsbus

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// ServePlans answers requests to apply a plan, sharing them with every other node that does. handler gets the
// plan as JSON.
func (c *Conn) ServePlans(handler func(spec []byte) wire.PlanAnswer) (*Subscription, error) {
	return c.subscribe(c.names.SubjectPlansApply(), wire.GroupPlans, func(msg *nats.Msg) {
		said := handler(msg.Data)
		if said.Error != nil { // it may repeat what came
			said.Error.Description = wire.CutText(strings.ReplaceAll(said.Error.Description, "\n", "; "))
		}
		answer, err := json.Marshal(said)
		if err != nil {
			c.log.Error("answer about a plan not encoded", "error", err)
			return
		}
		c.answer(msg.Reply, func(b []byte) []byte { return append(b, answer...) })
	})
}

// AnnouncePlans tells every node to read the plans again.
func (c *Conn) AnnouncePlans() error {
	return c.tell(c.names.SubjectPlansChanged(), "announcement of plans", nil, nil)
}

// OnPlansChanged calls f at every announcement. Announcements are lost while there is no server, so plans
// must also be read at the start, and before an unknown type is refused.
func (c *Conn) OnPlansChanged(f func()) (*Subscription, error) {
	return c.subscribe(c.names.SubjectPlansChanged(), "", func(*nats.Msg) { f() })
}

// AskRequest is a request about one task.
type AskRequest struct {
	Control core.Control

	// State and Outcome are part of an acceptance if they are set: the task's state when it was read, and
	// what will follow.
	State, Outcome string

	// OfType is whether the subject names the type, so that others than operators may be permitted to ask it.
	OfType bool

	conn  *Conn
	reply string
}

// Accept answers that the control message is stored. It is safe for concurrent use, and so is Refuse.
func (r *AskRequest) Accept(seq uint64, partition int) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return wire.AppendAccepted(b, &wire.SubmitAnswer{Stream: r.conn.StreamControl(partition), Seq: seq, Task: r.Control.ID, Partition: partition, State: r.State, Outcome: r.Outcome})
	})
}

// Refuse answers that it is not stored. code is an HTTP status, errCode a finer one; retry is when to try
// again, or 0.
func (r *AskRequest) Refuse(code, errCode int, description string, retry time.Duration) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return wire.AppendRefused(b, &wire.RefusedError{APIError: wire.APIError{Code: code, ErrCode: errCode, Description: wire.CutText(description)}, Task: r.Control.ID, Retry: retry})
	})
}

// ServeAsk serves duly.ask.<kind> and duly.ask.<kind>.<type>: cancel, undo, resubmit, resolve, extend, each
// with a control message as its payload. A client need not know the number of partitions, nor may it write to
// the control stream; each kind is a subject of its own, so that permissions can tell them apart. Answers
// have the form of a submission's. handler is called with one request at a time: what takes long belongs on
// another goroutine.
//
// read is called, in the same way, for duly.ask.get and duly.ask.list, which show tasks.
func (c *Conn) ServeAsk(handler func(*AskRequest), read func(*ReadRequest)) (*Subscription, error) {
	return c.subscribe(c.names.PatternAsk(), wire.GroupAsk, func(msg *nats.Msg) {
		if c.names.IsQuery(msg.Subject) {
			q, err := c.names.DecodeQuery(msg.Subject, msg.Data)
			r := &ReadRequest{Type: q.Type, ID: q.ID, List: q.List, OfType: c.names.AsksOfType(msg.Subject), conn: c, reply: msg.Reply}
			if err != nil {
				r.Reject(wire.CodeBadRequest, wire.ErrCodeOf(err, wire.ErrCodeQuery), err.Error(), 0)
				return
			}
			read(r)
			return
		}
		r := &AskRequest{OfType: c.names.AsksOfType(msg.Subject), conn: c, reply: msg.Reply}
		var err error
		if r.Control, err = c.names.DecodeAsk(msg.Subject, msg.Data); err != nil {
			r.Refuse(wire.CodeBadRequest, wire.ErrCodeOf(err, wire.ErrCodeBody), err.Error(), 0)
			return
		}
		handler(r)
	})
}

// ReadRequest is a request to read one task, or a page of a list; see Query.
type ReadRequest struct {
	Type string
	ID   string
	List core.Filter

	OfType bool // see AskRequest

	conn  *Conn
	reply string
}

// Answer answers with a task or a page; see DecodeTask and DecodePage.
func (r *ReadRequest) Answer(data []byte) {
	r.conn.answer(r.reply, func(b []byte) []byte { return append(b, data...) })
}

// Reject answers that there is nothing to show. code is an HTTP status, errCode a finer one.
func (r *ReadRequest) Reject(code, errCode int, description string, retry time.Duration) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return wire.AppendRefused(b, &wire.RefusedError{APIError: wire.APIError{Code: code, ErrCode: errCode, Description: wire.CutText(description)}, Task: r.ID, Retry: retry})
	})
}

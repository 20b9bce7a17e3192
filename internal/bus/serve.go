package bus

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
)

// ServePlans answers duly.plans.apply, together with every other that does.
// handler gets the plan as JSON; see DecodePlan.
func (c *Conn) ServePlans(handler func(spec []byte) PlanAnswer) (*Subscription, error) {
	return c.subscribe(SubjectPlansApply, GroupPlans, func(msg *nats.Msg) {
		said := handler(msg.Data)
		if said.Error != nil { // it may repeat what came
			said.Error.Description = CutText(said.Error.Description)
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
	if err := c.nc.Publish(SubjectPlansChanged, nil); err != nil {
		return fmt.Errorf("announcement of plans: %w", publishError(err))
	}
	return nil
}

// OnPlansChanged calls f at every announcement. It can be missed while there is
// no server: read the plans also at start and before an unknown type is refused.
func (c *Conn) OnPlansChanged(f func()) (*Subscription, error) {
	return c.subscribe(SubjectPlansChanged, "", func(*nats.Msg) { f() })
}

// AskRequest is a request of a client or a person about one task.
type AskRequest struct {
	Control core.Control

	conn  *Conn
	reply string
}

// Accept answers that the control message is stored.
func (r *AskRequest) Accept(seq uint64, partition int) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return AppendAccepted(b, &SubmitAnswer{Stream: StreamControl, Seq: seq, Task: r.Control.ID, Partition: partition})
	})
}

// Reject answers that it is not; code as HTTP.
func (r *AskRequest) Reject(code int, description string) {
	r.conn.answer(r.reply, func(b []byte) []byte {
		return AppendRefused(b, &RefusedError{WireError: WireError{Code: code, Description: CutText(description)}, Task: r.Control.ID})
	})
}

// ServeAsk serves duly.ask.<kind>: cancel, undo, resubmit, resolve, extend, each
// with a control message as its payload. A client knows neither the number of
// partitions nor needs the right to write to the control stream; each kind is a
// subject so that permissions can tell them apart. The answers have the form of
// the fast door's.
func (c *Conn) ServeAsk(handler func(*AskRequest)) (*Subscription, error) {
	return c.subscribe(patternAsk, GroupAsk, func(msg *nats.Msg) {
		r := &AskRequest{conn: c, reply: msg.Reply}
		kind, err := ParseAsk(msg.Subject)
		if err == nil {
			r.Control, err = DecodeControl(msg.Data)
		}
		if err == nil && r.Control.Kind != kind {
			err = fmt.Errorf("%s carries a request to %s", msg.Subject, ControlWord(r.Control.Kind))
		}
		if err != nil {
			r.Reject(CodeBadRequest, err.Error())
			return
		}
		handler(r)
	})
}

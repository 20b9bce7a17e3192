package natsbus

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// deadRoom is how many bytes of a dead letter are kept free for its headers.
const deadRoom = 16 << 10

// deadHeadersMax bounds how many bytes of the original headers a dead letter repeats.
const deadHeadersMax = 8 << 10

// PublishEndings stores endings in the event stream, those of one type and state together. Each message there
// is synced to disk, so when much is undone at once a message for each ending would hold everything else up.
// It calls done once, with nil when all of them are stored. endings may be reused as soon as PublishEndings
// returns.
func (c *Conn) PublishEndings(endings []core.Ending, done func(err error)) {
	t := &tally{left: 1, done: done} // 1: this call, so that done waits for its end
	packs, most := map[endingKind]*pack{}, c.MaxPayload()-eventsRoom
	for i := range endings {
		e := &endings[i]
		kind := endingKind{e.Type, e.State}
		p := packs[kind]
		if p == nil {
			p = &pack{buf: buffer()}
			packs[kind] = p
		}
		was := len(*p.buf)
		p.add(e)
		if p.items > 1 && len(*p.buf) > most {
			*p.buf = (*p.buf)[:was]
			p.items--
			c.flushPack(t, p)
			p.add(e)
		}
		if p.items == wire.EventsMax || len(*p.buf) >= wire.PackBytesMax {
			c.flushPack(t, p)
		}
	}
	for _, p := range packs {
		c.flushPack(t, p)
		release(p.buf)
	}
	t.end(nil)
}

// eventsRoom is how many bytes of a message are kept free for the end of a pack of endings.
const eventsRoom = 16

// endingKind is what the endings of a pack have in common.
type endingKind struct {
	taskType string
	state    core.State
}

// pack gathers endings of one type and state.
type pack struct {
	buf   *[]byte
	items int
	first *core.Ending
}

// add appends an ending to the pack.
func (p *pack) add(e *core.Ending) {
	if p.items == 0 {
		*p.buf = wire.BeginEvents((*p.buf)[:0], e.Type, e.State)
		p.first = e
	}
	*p.buf = wire.AppendEvent(*p.buf, p.items, e)
	p.items++
}

// flushPack publishes the tasks' endings in a pack as one message, counted in t, and empties the pack. One ending alone that
// needs attention is published as plain JSON, which a person can read.
func (c *Conn) flushPack(t *tally, p *pack) {
	switch {
	case p.items == 0:
		return
	case p.items == 1 && p.first.State != core.StateProcessed: // a lone ending that needs attention is easier to read
		*p.buf = wire.AppendEnding((*p.buf)[:0], p.first)
	default:
		*p.buf = wire.EndEvents(*p.buf)
	}
	p.items = 0
	c.publishEvent(t, c.names.EventSubject(p.first.Type, string(p.first.State)), *p.buf)
}

// publishEvent stores one message in the event stream and counts its outcome in t.
func (c *Conn) publishEvent(t *tally, subject string, data []byte) {
	t.begin()
	c.publish(kindEvents, subject, nil, data, func(_ uint64, err error) {
		if err != nil {
			err = fmt.Errorf("%s: %w", subject, err)
		}
		t.end(err)
	})
}

// tally calls done once everything that was begun has ended, with the first error.
type tally struct {
	mu sync.Mutex
	// left is how many have not ended. It begins with 1, which is the caller's own: until that ends done is
	// not called.
	left int
	// err is the first error.
	err  error
	done func(error)
}

// begin counts one more that has to end. Call it before whoever may call the last end.
func (t *tally) begin() {
	t.mu.Lock()
	t.left++
	t.mu.Unlock()
}

// end counts one that has ended, and calls done with the last.
func (t *tally) end(err error) {
	t.mu.Lock()
	if t.err == nil {
		t.err = err
	}
	t.left--
	last, err := t.left == 0, t.err
	t.mu.Unlock()
	if last {
		t.done(err)
	}
}

// PublishRefusals stores refusals in the event stream and waits until they are stored. If ctx has ended
// nothing is sent.
func (c *Conn) PublishRefusals(ctx context.Context, refused []core.Status) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%d refusals: %w", len(refused), err)
	}
	done := make(chan error, 1)
	t := &tally{left: 1, done: func(err error) { done <- err }}
	for i := range refused {
		b := buffer()
		*b = wire.AppendStatus(*b, &refused[i])
		c.publishEvent(t, c.names.EventSubject(refused[i].Type, core.StatusRefused), *b)
		release(b)
	}
	t.end(nil)
	outcome, err := await(ctx, done)
	if err != nil {
		return fmt.Errorf("%d refusals: %w", len(refused), err)
	}
	return outcome
}

// Notify publishes a status, without storing it, to the subject that a submitter named. If it named none, or
// one to which it may not direct answers, nothing is sent.
func (c *Conn) Notify(replyTo string, status core.Status) {
	if replyTo == "" || c.names.CheckReplyTo(replyTo, c.replyTo) != nil {
		return
	}
	c.notified.note(replyTo)
	c.publishStatus(replyTo, &status)
}

// Live publishes a status, without storing it, for whoever watches the task now.
func (c *Conn) Live(status core.Status) {
	if core.CheckName("type", status.Type) == nil && core.CheckTaskID(status.ID) == nil {
		c.publishStatus(c.names.LiveSubject(status.Type, status.ID), &status)
	}
}

// publishStatus publishes one status. If it cannot be sent it is lost.
func (c *Conn) publishStatus(subject string, status *core.Status) {
	b := buffer()
	defer release(b)
	*b = wire.AppendStatus(*b, status)
	if err := c.nc.Publish(subject, *b); err != nil {
		c.log.Debug("status not sent", "task", status.ID, "subject", subject, "error", err)
	}
}

// OnStatus calls f with the statuses sent to a subject, for instance a submitter's own.
func (c *Conn) OnStatus(subject string, f func(core.Status)) (*Subscription, error) {
	return c.subscribe(subject, "", func(msg *nats.Msg) {
		s, err := wire.DecodeStatus(msg.Data)
		if err != nil {
			c.log.Debug("status ignored", "subject", msg.Subject, "error", err)
			return
		}
		f(s)
	})
}

// Dead stores a message that could not be used, with the cause and its subject, waits until the stream of
// dead letters has it, and tells it: it may be work that was accepted. Its headers come along, except those
// that the server would act on, and unless they are too many. Data that does not fit in a message is cut.
func (c *Conn) Dead(ctx context.Context, stream, subject string, data []byte, cause string, header wire.Header) error {
	h := keptHeaders(nats.Header(header))
	if most := c.MaxPayload() - deadRoom; most > 0 && len(data) > most {
		cause = fmt.Sprintf("%s (cut from %d bytes)", cause, len(data))
		data = data[:most]
	}
	h[wire.HeaderCause] = []string{wire.CutText(cause)}
	h[wire.HeaderSubject] = []string{wire.Short(subject)}
	_, err := c.store(ctx, kindDead, c.names.DeadSubject(stream), h, data)
	if err != nil {
		return fmt.Errorf("dead letter of %s: %w", stream, err)
	}
	c.log.Error("ALERT: a stored message cannot be used; it is a dead letter", "event", "dead-letter", "stream", stream, "subject", wire.Short(subject), "error", cause)
	return nil
}

// keptHeaders returns the headers that a dead letter repeats: none, if they are larger than deadHeadersMax.
// With too many headers a message could not become a dead letter, and then it would stop its partition.
func keptHeaders(header nats.Header) nats.Header {
	h := nats.Header{}
	size := 0
	for name, values := range header {
		if strings.HasPrefix(name, "Nats-") {
			continue
		}
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
		if size > deadHeadersMax {
			return nats.Header{}
		}
		h[name] = values
	}
	return h
}

// PublishControl stores a control message and returns its position in the control stream.
func (c *Conn) PublishControl(ctx context.Context, partition int, control *core.Control) (uint64, error) {
	b := buffer()
	defer release(b)
	*b = wire.AppendControl(*b, control)
	seq, err := c.store(ctx, controlKind(c.streamOf(partition)), c.names.ControlSubject(partition), nil, *b)
	if err != nil {
		return 0, fmt.Errorf("control %s for partition %d: %w", wire.ControlWord(control.Kind), partition, err)
	}
	return seq, nil
}

// store publishes to a stream and waits for the confirmation. If ctx has ended nothing is sent.
func (c *Conn) store(ctx context.Context, kind int, subject string, header nats.Header, data []byte) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	type outcome struct {
		seq uint64
		err error
	}
	got := make(chan outcome, 1)
	c.publish(kind, subject, header, data, func(seq uint64, err error) { got <- outcome{seq, err} })
	o, err := await(ctx, got)
	if err != nil {
		return 0, err
	}
	return o.seq, o.err
}

// await waits for an outcome until ctx ends. An outcome that is there by then counts: a caller that was told
// of ctx's end instead would store again what is stored already.
func await[T any](ctx context.Context, got <-chan T) (T, error) {
	select {
	case v := <-got:
		return v, nil
	case <-ctx.Done():
	}
	select {
	case v := <-got:
		return v, nil
	default:
		var none T
		return none, ctx.Err()
	}
}

// tell publishes a message once, without storing it. what names the message in an error; err, if set, is
// returned in the same form.
func (c *Conn) tell(subject, what string, data []byte, err error) error {
	if err == nil {
		err = c.nc.Publish(subject, data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, publishError(err))
	}
	return nil
}

// hear calls f, from one goroutine, with what arrives at a subject. What cannot be read is logged under the
// name what, and ignored.
func hear[T any](c *Conn, subject, what string, read func([]byte) (T, error), f func(T)) (*Subscription, error) {
	return c.subscribe(subject, "", func(msg *nats.Msg) {
		is, err := read(msg.Data)
		if err != nil {
			c.log.Debug(what+" is ignored", "subject", msg.Subject, "error", err)
			return
		}
		f(is)
	})
}

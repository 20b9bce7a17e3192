package natsbus

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/wire"
)

// errBusy is what errors.Is finds in every BusyError.
var errBusy = errors.New("stream is busy")

// The hints of how long to wait before trying again.
const (
	retrySoon  = 100 * time.Millisecond // the window of unconfirmed packs is full
	retryLater = time.Second            // the stream is full, away or overloaded
)

// errStreamOffline is the only error of JetStream that means busy and has neither code 503 (10077: the stream is full;
// 10008: no leader) nor 429 (10167: the inbound queue is full).
const errStreamOffline = 10118

// BusyError says that a stream did not take a message just now. errors.Is finds
// errBusy and the cause.
type BusyError struct {
	Retry   time.Duration // when to try again
	Unknown bool          // it may have been stored all the same
	Err     error
}

// Error names the cause and the hint.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v, retry after %v: %v", errBusy, e.Retry, e.Err)
}

// Unwrap gives errBusy and the cause.
func (e *BusyError) Unwrap() []error { return []error{errBusy, e.Err} }

// acks publishes to streams and waits for their confirmations, on one inbox of
// its own: that costs half of what the library's asynchronous publish does.
type acks struct {
	nc      *nats.Conn
	timeout time.Duration

	mu  sync.Mutex
	sub *nats.Subscription
	// prefix is the inbox's subject; each message's reply subject is it and the message's id.
	prefix string
	// next is the id that was given last. It is in the reply subject, by which a confirmation finds its
	// message.
	next uint64
	// waits holds the messages that are not confirmed yet, by id.
	waits  map[uint64]wait
	closed bool
	// running counts the calls of done that were decided under mu, so that close can wait for them.
	running sync.WaitGroup
}

// secretInbox returns a random inbox for what only streams may send. Duly answers requests in any inbox, so
// whoever knew this one could have Duly's answer taken for a stream's confirmation. The library's own inboxes
// are guessable from one another, and agents see some of them.
func secretInbox(nc *nats.Conn) string { return inboxPrefix(nc) + "." + rand.Text() }

// inboxPrefix returns the prefix of a connection's inboxes, without the dot.
func inboxPrefix(nc *nats.Conn) string {
	return strings.TrimSuffix(cmp.Or(nc.Opts.InboxPrefix, nats.InboxPrefix), ".")
}

// wait is a message that is not confirmed yet. When timer fires first, the message counts as unknown: it may
// have been stored.
type wait struct {
	done  func(seq uint64, err error)
	timer *time.Timer
}

// newAcks makes it for confirmations that may take timeout. It subscribes to the inbox with the first
// message.
func newAcks(timeout time.Duration) *acks {
	return &acks{timeout: timeout, waits: map[uint64]wait{}}
}

// publish sends a message to a stream and calls done once: with the message's
// position, or with why not. done runs on another goroutine, or before publish
// returns when the message could not even be sent.
func (a *acks) publish(subject string, header nats.Header, data []byte, done func(seq uint64, err error)) {
	id, reply, err := a.expect(done)
	if err != nil {
		done(0, err)
		return
	}
	if len(header) == 0 {
		err = a.nc.PublishRequest(subject, reply, data)
	} else {
		err = a.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Header: header, Data: data})
	}
	if err != nil {
		a.finish(id, 0, publishError(err))
	}
}

// expect registers done under a new reply subject. The first call subscribes to the inbox.
func (a *acks) expect(done func(uint64, error)) (id uint64, reply string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, "", ErrClosed
	}
	if a.sub == nil {
		a.prefix = secretInbox(a.nc) + "."
		sub, err := a.nc.Subscribe(a.prefix+"*", a.receive)
		if err != nil {
			return 0, "", publishError(err)
		}
		if err := limitPending(sub, pendingMessagesMax, pendingBytesMax); err != nil {
			return 0, "", fmt.Errorf("limits of the inbox of confirmations: %w", err)
		}
		a.sub = sub
	}
	a.next++
	id = a.next
	a.waits[id] = wait{done: done, timer: time.AfterFunc(a.timeout, func() {
		a.finish(id, 0, &BusyError{Retry: retryLater, Unknown: true, Err: nats.ErrTimeout})
	})}
	return id, a.prefix + strconv.FormatUint(id, 36), nil
}

// finish calls done for an id, the first time only.
func (a *acks) finish(id, seq uint64, err error) {
	a.mu.Lock()
	w, ok := a.waits[id]
	if !ok {
		a.mu.Unlock()
		return
	}
	delete(a.waits, id)
	a.running.Add(1)
	a.mu.Unlock()
	defer a.running.Done()
	w.timer.Stop()
	w.done(seq, err)
}

// receive handles one message in the inbox.
func (a *acks) receive(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Subject[len(a.prefix):], 36, 64)
	if err != nil {
		return // not one of ours
	}
	seq, err := decodePubAck(msg)
	a.finish(id, seq, err)
}

// failAll ends every wait with err.
func (a *acks) failAll(err error) {
	a.mu.Lock()
	ids := make([]uint64, 0, len(a.waits))
	for id := range a.waits {
		ids = append(ids, id)
	}
	a.mu.Unlock()
	for _, id := range ids {
		a.finish(id, 0, err)
	}
}

// close fails what is not confirmed, and returns when the last done has run.
func (a *acks) close() {
	a.mu.Lock()
	a.closed = true
	sub := a.sub
	a.mu.Unlock()
	a.failAll(&BusyError{Retry: retryLater, Unknown: true, Err: ErrClosed})
	a.running.Wait()
	if sub != nil {
		_ = sub.Unsubscribe() // gone already is fine
	}
}

// decodePubAck reads a stream's confirmation.
func decodePubAck(msg *nats.Msg) (uint64, error) {
	if unserved(msg) {
		return 0, &BusyError{Retry: retryLater, Err: nats.ErrNoStreamResponse}
	}
	var ack struct {
		Stream string         `json:"stream"`
		Seq    uint64         `json:"seq"`
		Error  *wire.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("%w: confirmation of a stream: %w", wire.ErrUndecodable, err)
	}
	switch {
	case ack.Error != nil && busyCode(ack.Error):
		return 0, &BusyError{Retry: retryLater, Err: ack.Error}
	case ack.Error != nil:
		return 0, ack.Error
	case ack.Stream == "" || ack.Seq == 0:
		return 0, fmt.Errorf("%w: confirmation of a stream: %s", wire.ErrUndecodable, wire.Quote(msg.Data))
	}
	return ack.Seq, nil
}

// busyCode reports whether an error of JetStream passes by itself.
func busyCode(e *wire.APIError) bool {
	return e.Code == 503 || e.Code == 429 || e.ErrCode == errStreamOffline
}

// publishError wraps errors that pass by themselves, such as a missing server, in a *BusyError.
func publishError(err error) error {
	switch {
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionReconnecting):
		return &BusyError{Retry: retryLater, Err: err}
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

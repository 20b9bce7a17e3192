package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// How a puller's wait can end without a message.
var (
	errMute    = errors.New("no heartbeat")            // consumer, server or network is away
	errRemoved = errors.New("the consumer is removed") // the server says so
	errWoken   = errors.New("woken")
)

// puller requests messages from a consumer ahead of their use. It replaces the library's iterator, which
// keeps heartbeats in the same buffer as messages: if its handler blocks long enough, it drops deliveries. A
// puller has no goroutine.
type puller struct {
	nc *nats.Conn
	// subject is where requests go.
	subject string
	inbox   string
	sub     *nats.Subscription
	in      chan *nats.Msg
	request pullRequest
	// asked is how many messages the requests that are out may still bring.
	asked int
	// got counts messages since a request last ended at the byte limit.
	got int
	// at is when the last request was sent, brought whether it has brought a message.
	at      time.Time
	brought bool
	// refused is whether the last request ended at once without a message: the next one waits for pullPause.
	refused bool
	timer   *time.Timer
}

// pullPause is how long a puller waits after a request that the server ended at once, as a server with too many requests
// does.
const pullPause = 200 * time.Millisecond

// pullRequest is JetStream's.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// newPuller makes a puller for an existing consumer. maxBytes bounds one request.
func newPuller(nc *nats.Conn, stream, consumer string, config ReadConfig, maxBytes int) (*puller, error) {
	// While the handler blocks nothing is asked for, so this bounds what can
	// come: the messages asked for, and of each of at most three requests its
	// heartbeats and its end.
	room := 2*config.Prefetch + 3*(int(config.expiry/config.heartbeat)+2)
	p := &puller{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer, inbox: secretInbox(nc), in: make(chan *nats.Msg, room),
		request: pullRequest{MaxBytes: maxBytes, Expires: config.expiry, Heartbeat: config.heartbeat, Batch: config.Prefetch}, timer: time.NewTimer(time.Hour)}
	var err error
	if p.sub, err = nc.ChanSubscribe(p.inbox, p.in); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return p, nil
}

// close stops requesting and drops what has arrived.
func (p *puller) close() {
	p.timer.Stop()
	_ = p.sub.Unsubscribe() // gone already is fine
}

// next waits for a message. Errors: errMute, after which it may be called again; errRemoved; errWoken; ctx's.
func (p *puller) next(ctx context.Context, wake <-chan struct{}) (*nats.Msg, error) {
	for {
		p.ask()
		msg, err := p.take(ctx, wake)
		if err != nil {
			return nil, err
		}
		if msg == nil { // the pause is over
			continue
		}
		status := ""
		if len(msg.Data) == 0 && len(msg.Header) > 0 {
			status = msg.Header.Get("Status")
		}
		if status == "" {
			p.asked--
			p.got++
			p.brought = true
			return msg, nil
		}
		if err := p.status(status, msg); err != nil {
			return nil, err
		}
	}
}

// ask requests more messages when half of them are used up. If there is no server it asks again after the
// next missing heartbeat.
func (p *puller) ask() {
	want := p.request.Batch - p.asked
	if p.refused || p.asked > p.request.Batch/2 || want <= 0 {
		return
	}
	p.at, p.brought = time.Now(), false
	request := p.request
	request.Batch = want
	data, err := json.Marshal(request)
	if err == nil {
		err = p.nc.PublishRequest(p.subject, p.inbox, data)
	}
	if err == nil || p.asked == 0 {
		p.asked += want
	}
}

// take waits for whatever the server sends; nil: only a pause has ended.
func (p *puller) take(ctx context.Context, wake <-chan struct{}) (*nats.Msg, error) {
	select {
	case <-wake:
		return nil, errWoken
	case msg, ok := <-p.in: // often there is one, and no need of a timer
		return received(msg, ok)
	default:
	}
	wait := 2 * p.request.Heartbeat
	if p.refused {
		wait = pullPause
	}
	p.timer.Reset(wait)
	select {
	case msg, ok := <-p.in:
		return received(msg, ok)
	case <-wake:
		return nil, errWoken
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.timer.C:
		if p.refused {
			p.refused = false
			return nil, nil
		}
		p.asked = 0
		return nil, errMute
	}
}

// received turns the end of the subscription, which comes with that of the connection, into an error.
func received(msg *nats.Msg, ok bool) (*nats.Msg, error) {
	if !ok || msg == nil {
		return nil, ErrClosed
	}
	return msg, nil
}

// status handles what is not a message. It ignores a status that it does not know: if the request has ended,
// errMute follows.
func (p *puller) status(status string, msg *nats.Msg) error {
	description := strings.ToLower(msg.Header.Get("Description"))
	switch {
	case status == "100": // heartbeat
	case strings.Contains(description, "consumer deleted"):
		return errRemoved
	case strings.Contains(description, "leadership change"), strings.Contains(description, "server shutdown"):
		p.asked = 0
		p.refused = p.atOnce()
	default:
		if strings.Contains(description, "exceeds maxbytes") {
			if p.got == 0 { // the next message alone is larger; it must not stop the rest
				p.request.MaxBytes *= 2
			}
			p.got = 0
		} else {
			p.refused = p.atOnce()
		}
		// The end of a request says how many messages it did not use up.
		if unused, err := strconv.Atoi(msg.Header.Get("Nats-Pending-Messages")); err == nil {
			p.asked = max(0, p.asked-unused)
		}
	}
	return nil
}

// atOnce reports whether the last request ended as soon as it had arrived.
func (p *puller) atOnce() bool { return !p.brought && time.Since(p.at) < pullPause }

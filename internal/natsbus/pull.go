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

// How a puller's wait ends without a message.
var (
	errMute    = errors.New("no heartbeat")            // the consumer, the server or the network is away
	errRemoved = errors.New("the consumer is removed") // the server says so
	errWoken   = errors.New("woken")
)

// puller asks a consumer for messages ahead of their use. It does what the
// library's iterator does, but for one thing: that one keeps heartbeats in the
// room it has for messages, and a handler that blocks long enough makes it drop
// deliveries. It has no goroutine.
type puller struct {
	nc      *nats.Conn
	subject string // of requests
	inbox   string
	sub     *nats.Subscription
	in      chan *nats.Msg
	request pullRequest
	asked   int       // messages the requests out still allow
	got     int       // messages since the byte limit was last met
	at      time.Time // of the last request
	brought bool      // it has brought a message
	refused bool      // it ended at once and brought nothing: the next one waits
	timer   *time.Timer
}

// pullPause is how long a puller waits after a request that the server ended at
// once, as one does that has too many of them, before it asks again.
const pullPause = 200 * time.Millisecond

// pullRequest is JetStream's.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// newPuller pulls from a consumer that exists.
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

// close asks for no more and drops what is there.
func (p *puller) close() {
	p.timer.Stop()
	_ = p.sub.Unsubscribe() // gone already is fine
}

// next waits for a message. Errors: errMute, after which it may be called again;
// errRemoved; errWoken; ctx's.
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

// ask requests more when half is used up. Without a server just now it asks
// again after the next missing heartbeat.
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

// take waits for whatever the server sends; nil: for a pause only.
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

// received distinguishes a message from the end of the subscription, which comes with
// that of the connection.
func received(msg *nats.Msg, ok bool) (*nats.Msg, error) {
	if !ok || msg == nil {
		return nil, ErrClosed
	}
	return msg, nil
}

// status reads what is not a message. A status that is not understood ends
// nothing: without the heartbeats of a request that lives, errMute follows.
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

// atOnce reports whether the last request ended as soon as it was there.
func (p *puller) atOnce() bool { return !p.brought && time.Since(p.at) < pullPause }
